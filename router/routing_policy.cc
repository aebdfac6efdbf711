#include "router/routing_policy.h"

#include <algorithm>
#include <tuple>

namespace baton {
namespace {

// More than any prompt costs, so that a full pool is the last choice but still one: the hint may be
// old.
constexpr int64_t kFullPoolPenalty = int64_t{1} << 40;

int64_t UncachedTokens(const RoutingInput& input, WorkerNumber number) {
  const auto found = input.cached_tokens.find(number);
  const int32_t cached = found == input.cached_tokens.end() ? 0 : found->second;
  return std::max<int64_t>(1, int64_t{input.prompt_tokens} - cached);
}

int64_t Cost(const RoutingOptions& options, const RoutingInput& input, const WorkerRecord& worker) {
  const int64_t uncached = UncachedTokens(input, worker.number);
  int64_t cost = uncached + int64_t{worker.Load()} * options.tokens_per_load;
  const int64_t room = int64_t{worker.report.available_blocks} * worker.report.block_size;
  if (room < uncached) cost += kFullPoolPenalty;
  return cost;
}

bool ComputesLocally(const RoutingOptions& options, const RoutingInput& input, WorkerNumber decode,
                     WorkerNumber prefill) {
  const int64_t here = UncachedTokens(input, decode);
  if (here <= options.local_prefill_tokens) return true;
  if (here > options.local_continuation_tokens) return false;
  // Equal shares are a draw, which shipping loses when most of the prompt is here.
  const int64_t there = UncachedTokens(input, prefill);
  return here < there || (here == there && 2 * here <= input.prompt_tokens);
}

template <typename Predicate>
const WorkerRecord* Cheapest(const RoutingOptions& options, const RoutingInput& input,
                             std::span<const WorkerRecord> workers, Predicate eligible) {
  const WorkerRecord* best = nullptr;
  std::tuple<int64_t, int64_t, WorkerNumber> best_key;
  for (const WorkerRecord& worker : workers) {
    if (!worker.Usable() || !eligible(worker)) continue;
    const std::tuple key(Cost(options, input, worker), worker.assigned, worker.number);
    if (best == nullptr || key < best_key) {
      best = &worker;
      best_key = key;
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<RoutePlan> ChooseRoute(const RoutingOptions& options, const RoutingInput& input,
                                      std::span<const WorkerRecord> workers) {
  const auto has_partner = [&workers](const WorkerRecord& decode) {
    return std::any_of(workers.begin(), workers.end(), [&decode](const WorkerRecord& worker) {
      return worker.Usable() && worker.CanPrefill() && worker.number != decode.number &&
             worker.report.fingerprint == decode.report.fingerprint;
    });
  };
  const bool remote_demanded = input.placement == Placement::kRemote;
  const WorkerRecord* decode = Cheapest(options, input, workers, [&](const WorkerRecord& worker) {
    return worker.CanDecode() && !input.excluded.contains(worker.number) &&
           (!remote_demanded || has_partner(worker));
  });
  if (decode == nullptr) {
    return absl::UnavailableError(
        remote_demanded ? "no prefill worker and decode worker with equal fingerprints are ready"
                        : "no decode worker is ready");
  }

  RoutePlan plan{.decode = decode->number, .prefill = std::nullopt};
  if (input.placement == Placement::kLocal) return plan;
  const WorkerRecord* prefill = Cheapest(options, input, workers, [&](const WorkerRecord& worker) {
    return worker.CanPrefill() && worker.number != decode->number &&
           worker.report.fingerprint == decode->report.fingerprint;
  });
  if (prefill == nullptr) return plan;
  if (input.placement == Placement::kRemote ||
      !ComputesLocally(options, input, decode->number, prefill->number)) {
    plan.prefill = prefill->number;
  }
  return plan;
}

}  // namespace baton
