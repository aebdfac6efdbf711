#include "routing/picking_policy.h"

#include <algorithm>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "routing/route_cost.h"
#include "routing/worker_match.h"

namespace baton {
namespace {

// Tells which decode workers have a worker for which MayPrefillFor is true. O(workers × kinds of
// workers) for all of them.
class PartnerCounts {
 public:
  PartnerCounts(const RoutingInput& input, std::span<const WorkerRecord> workers) : input_(input) {
    for (const WorkerRecord& worker : workers) {
      if (MayPrefill(input, worker)) ++KindOf(worker).count;
    }
  }
  // REQUIRES: `decode` is one of the workers, and usable.
  bool HasPartner(const WorkerRecord& decode) const {
    if (!HandsOver(input_, decode)) return false;
    int partners = decode.CanPrefill() ? -1 : 0;  // not itself
    for (const Kind& kind : kinds_) {
      if (MayHandOver(kind.like->report, decode.report)) partners += kind.count;
    }
    return partners > 0;
  }

 private:
  struct Kind {
    const WorkerRecord* like;
    int count = 0;
  };
  Kind& KindOf(const WorkerRecord& worker) {
    for (Kind& kind : kinds_) {
      if (SameKind(kind.like->report, worker.report)) return kind;
    }
    return kinds_.emplace_back(Kind{.like = &worker});
  }
  const RoutingInput& input_;
  absl::InlinedVector<Kind, 2> kinds_;  // of workers that prefill
};

}  // namespace

absl::StatusOr<RoutePlan> PickingPolicy::Choose(const RoutingInput& input, const FleetView& fleet) {
  const bool remote = input.placement == Placement::kRemote;
  const PartnerCounts partners(input, remote ? fleet.workers : std::span<const WorkerRecord>());
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
    if (MayPrefillFor(input, decode, worker)) candidates_.push_back(&worker);
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
