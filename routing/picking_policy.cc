#include "routing/picking_policy.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "routing/route_cost.h"

namespace baton {
namespace {

// Which decode workers MayPrefillFor finds somebody for: O(workers) for all of them.
class PartnerCounts {
 public:
  explicit PartnerCounts(std::span<const WorkerRecord> workers) {
    for (const WorkerRecord& worker : workers) {
      if (worker.Usable() && worker.CanPrefill()) ++prefillers_[worker.report.fingerprint];
    }
  }
  // REQUIRES: `decode` is one of the workers, and usable.
  bool HasPartner(const WorkerRecord& decode) const {
    const auto it = prefillers_.find(decode.report.fingerprint);
    const int itself = decode.CanPrefill() ? 1 : 0;
    return it != prefillers_.end() && it->second > itself;
  }

 private:
  absl::flat_hash_map<std::string_view, int> prefillers_;  // by fingerprint
};

}  // namespace

absl::StatusOr<RoutePlan> PickingPolicy::Choose(const RoutingInput& input, const FleetView& fleet) {
  const bool remote = input.placement == Placement::kRemote;
  const PartnerCounts partners(remote ? fleet.workers : std::span<const WorkerRecord>());
  candidates_.clear();
  for (const WorkerRecord& worker : fleet.workers) {
    if (!MayDecode(input, worker)) continue;
    if (!remote || partners.HasPartner(worker)) candidates_.push_back(&worker);
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
