// For tests of RequestFlow: the kinds of its actions, and route plans with decode worker 1, prefill
// worker 2, and a pull from worker 3.
#pragma once

#include <optional>
#include <vector>

#include "router/request_flow.h"
#include "routing/routing_policy.h"

namespace baton {

inline std::vector<FlowAction::Kind> Kinds(const RequestFlow::Actions& actions) {
  std::vector<FlowAction::Kind> out;
  for (const FlowAction& action : actions) out.push_back(action.kind);
  return out;
}

constexpr RoutePlan Remote() { return {.decode = WorkerNumber(1), .prefill = WorkerNumber(2)}; }
constexpr RoutePlan Local() { return {.decode = WorkerNumber(1), .prefill = std::nullopt}; }

inline RoutePlan Pulling() {
  RoutePlan plan = Remote();
  plan.pull = PrefixPull{.from = WorkerNumber(3), .tokens = 16};
  return plan;
}

}  // namespace baton
