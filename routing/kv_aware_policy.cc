#include "routing/kv_aware_policy.h"

#include <array>
#include <string_view>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "routing/route_cost.h"

namespace baton {
namespace {

using Key = std::tuple<double, int64_t, WorkerNumber>;

Key KeyOf(double cost_us, const WorkerRecord& worker) {
  return {cost_us, worker.assigned, worker.number};
}

// The two prefill workers of one fingerprint that would be done first: the second is for the decode
// worker that is the first.
struct Partners {
  std::string_view fingerprint;
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
  const WorkerRecord* For(const WorkerRecord& decode) const {
    return workers[0] != nullptr && workers[0]->number == decode.number ? workers[1] : workers[0];
  }
};

class PrefillPool {
 public:
  PrefillPool(const RouteCost& cost, std::span<const WorkerRecord> workers) {
    for (const WorkerRecord& worker : workers) {
      if (!worker.Usable() || !worker.CanPrefill()) continue;
      Partners* partners = Find(worker.report.fingerprint);
      if (partners == nullptr) {
        partners = &by_fingerprint_.emplace_back();
        partners->fingerprint = worker.report.fingerprint;
      }
      partners->Offer(worker, cost.PrefillUs(worker));
    }
  }
  // Null when there is none.
  const WorkerRecord* PartnerOf(const WorkerRecord& decode) {
    const Partners* const partners = Find(decode.report.fingerprint);
    return partners == nullptr ? nullptr : partners->For(decode);
  }

 private:
  Partners* Find(std::string_view fingerprint) {
    for (Partners& partners : by_fingerprint_) {
      if (partners.fingerprint == fingerprint) return &partners;
    }
    return nullptr;
  }
  absl::InlinedVector<Partners, 2> by_fingerprint_;
};

}  // namespace

absl::StatusOr<RoutePlan> KvAwarePolicy::Choose(const RoutingInput& input, const FleetView& fleet) {
  const RouteCost cost(options_, input, fleet);
  const bool may_help = input.placement != Placement::kLocal;
  const bool must_help = input.placement == Placement::kRemote;
  PrefillPool prefill_pool(cost, may_help ? fleet.workers : std::span<const WorkerRecord>());
  const WorkerRecord* best_decode = nullptr;
  const WorkerRecord* best_prefill = nullptr;
  Key best;
  for (const WorkerRecord& decode : fleet.workers) {
    if (!MayDecode(input, decode)) continue;
    const WorkerRecord* prefill = prefill_pool.PartnerOf(decode);
    if (must_help && prefill == nullptr) continue;
    const WorkerRecord* helper = prefill;
    if (!must_help && prefill != nullptr && cost.ComputesLocally(decode, *prefill)) {
      helper = nullptr;
    }
    const Key key = KeyOf(
        helper != nullptr ? cost.RemoteUs(decode, *helper) : cost.LocalUs(decode, prefill), decode);
    if (best_decode != nullptr && best <= key) continue;
    best_decode = &decode;
    best_prefill = helper;
    best = key;
  }
  if (best_decode == nullptr) return NoWorkerError(input.placement);
  return cost.Plan(*best_decode, best_prefill);
}

}  // namespace baton
