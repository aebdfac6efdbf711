#include "routing/picking_policy.h"

#include <algorithm>
#include <tuple>

#include "routing/route_cost.h"

namespace baton {
namespace {

bool HasPartner(std::span<const WorkerRecord> workers, const WorkerRecord& decode) {
  return std::any_of(workers.begin(), workers.end(), [&decode](const WorkerRecord& worker) {
    return MayPrefillFor(decode, worker);
  });
}

}  // namespace

absl::StatusOr<RoutePlan> PickingPolicy::Choose(const RoutingInput& input, const FleetView& fleet) {
  const bool remote = input.placement == Placement::kRemote;
  candidates_.clear();
  for (const WorkerRecord& worker : fleet.workers) {
    if (!MayDecode(input, worker)) continue;
    if (!remote || HasPartner(fleet.workers, worker)) candidates_.push_back(&worker);
  }
  if (candidates_.empty()) return NoWorkerError(input.placement);
  const WorkerRecord& decode = Pick(WorkerPool::kDecode, candidates_, input);

  const RouteCost cost(options_, input, fleet);
  if (input.placement == Placement::kLocal || (!remote && decode.CanPrefill())) {
    return cost.Plan(decode, nullptr);
  }
  candidates_.clear();
  for (const WorkerRecord& worker : fleet.workers) {
    if (MayPrefillFor(decode, worker)) candidates_.push_back(&worker);
  }
  if (candidates_.empty()) return cost.Plan(decode, nullptr);
  const WorkerRecord& prefill = Pick(WorkerPool::kPrefill, candidates_, input);
  const bool local = !remote && cost.ComputesLocally(decode, prefill);
  return cost.Plan(decode, local ? nullptr : &prefill);
}

bool LessLoaded(const WorkerRecord& a, const WorkerRecord& b) {
  return std::tuple(a.Load(), a.pending.us, a.assigned, a.number) <
         std::tuple(b.Load(), b.pending.us, b.assigned, b.number);
}

const WorkerRecord& LeastLoaded(Candidates candidates) {
  return **std::min_element(candidates.begin(), candidates.end(),
                            [](const auto* a, const auto* b) { return LessLoaded(*a, *b); });
}

}  // namespace baton
