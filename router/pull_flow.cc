#include "router/pull_flow.h"

#include <algorithm>

namespace baton {

int64_t PullTimeoutMs(const RouterOptions& options, const PrefixPull& pull) {
  constexpr double kLongestMs = 3'600'000;
  const double patience_ms = options.pull_patience * static_cast<double>(pull.us) / 1000;
  return std::max(options.pull_least_ms, static_cast<int64_t>(std::min(patience_ms, kLongestMs)));
}

}  // namespace baton
