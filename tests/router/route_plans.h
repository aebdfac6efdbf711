// Route plans for tests of RequestFlow: decode worker 1, prefill worker 2, and a pull from worker
// 3.
#pragma once

#include <optional>

#include "routing/routing_policy.h"

namespace baton {

constexpr RoutePlan Remote() { return {.decode = WorkerNumber(1), .prefill = WorkerNumber(2)}; }
constexpr RoutePlan Local() { return {.decode = WorkerNumber(1), .prefill = std::nullopt}; }

inline RoutePlan Pulling() {
  RoutePlan plan = Remote();
  plan.pull = PrefixPull{.from = WorkerNumber(3), .tokens = 16};
  return plan;
}

}  // namespace baton
