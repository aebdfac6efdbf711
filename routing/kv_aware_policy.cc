#include "routing/kv_aware_policy.h"

#include <array>
#include <optional>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "routing/route_cost.h"
#include "routing/worker_match.h"

namespace baton {
namespace {

using Key = std::tuple<double, int64_t, WorkerNumber>;

Key KeyOf(double cost_us, const WorkerRecord& worker) {
  return {cost_us, worker.assigned, worker.number};
}

bool PoolsAreCutAlike(const WorkerRecord& a, const WorkerRecord& b) {
  return a.report.block_size == b.report.block_size && a.report.pool_layout == b.report.pool_layout;
}

// The two prefill workers of one kind and one pool shape that would finish first. The second one is
// for the case that the first one is the decode worker itself.
struct Partners {
  const WorkerRecord* like;  // one worker of this kind
  std::array<const WorkerRecord*, 2> workers = {};
  std::array<Key, 2> keys = {};

  void Offer(const WorkerRecord& worker, double cost_us) {
    const Key key = KeyOf(cost_us, worker);
    if (workers[0] == nullptr || key < keys[0]) {
      workers[1] = workers[0];
      keys[1] = keys[0];
      workers[0] = &worker;
      keys[0] = key;
    } else if (workers[1] == nullptr || key < keys[1]) {
      workers[1] = &worker;
      keys[1] = key;
    }
  }
  // Index in `workers` of the best prefill worker for `decode`; nullopt if none.
  std::optional<size_t> For(const WorkerRecord& decode) const {
    const size_t place = workers[0]->number == decode.number ? 1 : 0;
    return workers[place] == nullptr ? std::nullopt : std::optional<size_t>(place);
  }
};

bool HoldsMore(const RouteCost& cost, const WorkerRecord& a, const WorkerRecord& b) {
  return std::tuple(cost.Uncached(a), a.Load(), a.number) <
         std::tuple(cost.Uncached(b), b.Load(), b.number);
}

class PrefillPool {
 public:
  explicit PrefillPool(const RoutingInput& input) : input_(input) {}
  void OfferAll(const RouteCost& cost, const FleetView& fleet) {
    for (size_t i = 0; i < fleet.size(); ++i) {
      const WorkerRecord& worker = fleet.At(i);
      if (!MayPrefill(input_, worker)) continue;
      PartnersLike(worker).Offer(worker, cost.PrefillUs(worker));
    }
  }
  // The prefill worker that would finish first; null if none. On equal times it prefers a worker
  // whose pool has the decode worker's shape, because then blocks are transferred whole.
  const WorkerRecord* PartnerOf(const WorkerRecord& decode) const {
    if (!HandsOver(input_, decode)) return nullptr;
    const WorkerRecord* best = nullptr;
    std::tuple<double, bool, int64_t, WorkerNumber> best_key;
    for (const Partners& partners : kinds_) {
      if (!MayHandOver(partners.like->report, decode.report)) continue;
      const std::optional<size_t> place = partners.For(decode);
      if (!place) continue;
      const auto& [cost_us, assigned, number] = partners.keys[*place];
      const std::tuple key(cost_us, !PoolsAreCutAlike(*partners.like, decode), assigned, number);
      if (best != nullptr && best_key <= key) continue;
      best = partners.workers[*place];
      best_key = key;
    }
    return best;
  }

 private:
  Partners& PartnersLike(const WorkerRecord& worker) {
    for (Partners& partners : kinds_) {
      if (SameKind(partners.like->report, worker.report) &&
          PoolsAreCutAlike(*partners.like, worker)) {
        return partners;
      }
    }
    return kinds_.emplace_back(Partners{.like = &worker});
  }
  const RoutingInput& input_;
  absl::InlinedVector<Partners, 2> kinds_;
};

}  // namespace

absl::StatusOr<RoutePlan> KvAwarePolicy::Choose(const RoutingInput& input, const FleetView& fleet) {
  const RouteCost cost(options_, input, fleet);
  const bool may_help = input.placement != Placement::kLocal;
  const bool must_help = input.placement == Placement::kRemote;
  PrefillPool prefill_pool(input);
  if (may_help) prefill_pool.OfferAll(cost, fleet);
  const WorkerRecord* best_decode = nullptr;
  const WorkerRecord* best_prefill = nullptr;
  const WorkerRecord* holder = nullptr;  // decode worker with most of the prompt
  const WorkerRecord* holder_prefill = nullptr;
  Key best;
  for (size_t i = 0; i < fleet.size(); ++i) {
    const WorkerRecord& decode = fleet.At(i);
    if (!MayDecode(input, decode)) continue;
    const WorkerRecord* prefill = prefill_pool.PartnerOf(decode);
    if (must_help && prefill == nullptr) continue;
    const WorkerRecord* helper = prefill;
    if (!must_help && prefill != nullptr && cost.ComputesLocally(decode, *prefill)) {
      helper = nullptr;
    }
    if (cost.MayStay(decode) && (holder == nullptr || HoldsMore(cost, decode, *holder))) {
      holder = &decode;
      holder_prefill = helper;
    }
    const Key key = KeyOf(
        helper != nullptr ? cost.RemoteUs(decode, *helper) : cost.LocalUs(decode, prefill), decode);
    if (best_decode != nullptr && best <= key) continue;
    best_decode = &decode;
    best_prefill = helper;
    best = key;
  }
  if (best_decode == nullptr) return NoWorkerError(input.placement);
  if (holder != nullptr && cost.WaitsNoLonger(*holder, *best_decode)) {
    return cost.Plan(*holder, holder_prefill);
  }
  return cost.Plan(*best_decode, best_prefill);
}

}  // namespace baton
