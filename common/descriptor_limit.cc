#include "common/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace baton {

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<int64_t>(
      std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
}

}  // namespace baton
