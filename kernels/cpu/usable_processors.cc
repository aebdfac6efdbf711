#include "kernels/cpu/usable_processors.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <thread>

#include "common/str_cat.h"

namespace baton {
namespace {

// Returns the second word of "QUOTA PERIOD". NumberIn reads the first one.
std::optional<int64_t> SecondNumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string quota;
  int64_t period = 0;
  return file >> quota >> period ? std::optional(period) : std::nullopt;
}

// Returns the whole processors that the group's quota allows; nullopt: no quota.
std::optional<int64_t> Quota(const ControlGroup& group) {
  const std::string max = StrCat(group.folder, "/cpu.max");
  const bool first = group.version == 1;
  const auto quota = NumberIn(first ? StrCat(group.folder, "/cpu.cfs_quota_us") : max);
  const auto period =
      first ? NumberIn(StrCat(group.folder, "/cpu.cfs_period_us")) : SecondNumberIn(max);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

int64_t AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return std::thread::hardware_concurrency();
}

}  // namespace

int UsableProcessors(const ControlGroupPaths& paths) {
  int64_t processors = AllowedProcessors();
  for (const ControlGroup& group : OwnControlGroups("cpu", paths)) {
    if (const auto quota = Quota(group)) processors = std::min(processors, *quota);
  }
  return static_cast<int>(std::max<int64_t>(1, processors));
}

}  // namespace baton
