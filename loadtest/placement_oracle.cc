#include "loadtest/placement_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "routing/route_cost.h"

namespace baton {
namespace {

constexpr int32_t kUnboundedChunk = 1 << 20;

int64_t GoodOf(const std::vector<RequestRecord>& records, const ServiceObjectives& objectives) {
  return std::count_if(records.begin(), records.end(),
                       [&](const RequestRecord& record) { return IsGood(record, objectives); });
}

// Of two runs with as many good requests, the one with the shorter first tokens is better.
double MeanFirstTokenMs(const std::vector<RequestRecord>& records) {
  double ms = 0;
  for (const RequestRecord& record : records) {
    if (record.first_content_us >= 0) ms += record.ttft_ms();
  }
  return ms;
}

class ClairvoyantPolicy final : public RoutingPolicy {
 public:
  ClairvoyantPolicy(const PlacementRule& rule, const ServiceObjectives& objectives,
                    const RoutingOptions& routing, const FleetTruth& truth)
      : rule_(rule), objectives_(objectives), routing_(routing), truth_(truth) {}

  absl::StatusOr<RoutePlan> Choose(const RoutingInput& input, const FleetView& fleet) override {
    const WorkerRecord* decode = nullptr;
    double least_us = 0;
    for (size_t i = 0; i < fleet.size(); ++i) {
      const WorkerRecord& worker = fleet.At(i);
      if (!MayDecode(input, worker) || !Takes(input, fleet, worker)) continue;
      const double us = worker.CanPrefill() ? CostUs(input, fleet, worker) : DecodeUs(worker);
      if (decode != nullptr && us >= least_us) continue;
      decode = &worker;
      least_us = us;
    }
    if (decode == nullptr) return NoWorkerError(input.placement);
    const RouteCost cost(routing_, input, fleet);
    const bool alone = input.placement == Placement::kLocal || decode->CanPrefill();
    return cost.Plan(*decode, alone ? nullptr : PrefillerFor(input, fleet, *decode));
  }

 private:
  const SimulatedWorker& At(const WorkerRecord& worker) const {
    return *(*truth_.workers)[worker.number.value() - 1];
  }
  double ComputeUs(const RoutingInput& input, const WorkerRecord& worker) const {
    const auto found = input.cached_tokens.find(worker.number);
    const int32_t cached = found == input.cached_tokens.end() ? 0 : found->second;
    return truth_.times->PrefillUs(std::min(cached, input.prompt_tokens - 1), input.prompt_tokens,
                                   kUnboundedChunk);
  }
  double WaitUs(const RoutingInput& input, const WorkerRecord& worker) const {
    return static_cast<double>(At(worker).RemainingPrefillUs()) + ComputeUs(input, worker);
  }
  double DecodeUs(const WorkerRecord& worker) const {
    return rule_.decode_weight_us * static_cast<double>(At(worker).RemainingOutputTokens());
  }
  double CostUs(const RoutingInput& input, const FleetView& fleet,
                const WorkerRecord& worker) const {
    if (IsHopeless(input, fleet) && rule_.sacrificed > 0) {
      return -static_cast<double>(At(worker).RemainingPrefillUs());  // waits where most wait
    }
    SeededRandom random(MixBits(rule_.seed ^ truth_.request) ^ worker.number.value());
    const double us =
        WaitUs(input, worker) + rule_.compute_weight * ComputeUs(input, worker) + DecodeUs(worker);
    return us * (1 + rule_.noise * (2 * random.Uniform() - 1));
  }
  bool IsHopeless(const RoutingInput& input, const FleetView& fleet) const {
    if (!objectives_.ttft_ms) return false;
    if (truth_.request == known_request_) return known_hopeless_;
    known_request_ = truth_.request;
    known_hopeless_ = true;
    for (size_t i = 0; i < fleet.size() && known_hopeless_; ++i) {
      const WorkerRecord& worker = fleet.At(i);
      if (!worker.CanPrefill()) continue;
      known_hopeless_ = WaitUs(input, worker) > *objectives_.ttft_ms * 1000;
    }
    return known_hopeless_;
  }
  // False if the rule keeps the request away from this worker.
  bool Takes(const RoutingInput& input, const FleetView& fleet, const WorkerRecord& worker) const {
    if (!worker.CanPrefill()) return true;
    const auto all = static_cast<int64_t>(truth_.workers->size());
    const int64_t from_end = all - worker.number.value() + 1;
    if (rule_.sacrificed > 0 && IsHopeless(input, fleet)) return from_end <= rule_.sacrificed;
    if (rule_.long_workers == 0 || rule_.long_workers >= all) return true;
    const bool is_long = ComputeTokens(input, fleet) > rule_.long_tokens;
    return is_long == (from_end <= rule_.long_workers);
  }
  // Tokens that the worker with most of the prompt must compute.
  static int32_t ComputeTokens(const RoutingInput& input, const FleetView&) {
    int32_t most = 0;
    for (const auto& [worker, tokens] : input.cached_tokens) most = std::max(most, tokens);
    return input.prompt_tokens - most;
  }
  // nullptr: the decode worker computes the prompt.
  const WorkerRecord* PrefillerFor(const RoutingInput& input, const FleetView& fleet,
                                   const WorkerRecord& decode) const {
    const WorkerRecord* best = nullptr;
    double least_us = WaitUs(input, decode) * (1 + rule_.compute_weight);
    if (input.placement == Placement::kRemote) least_us = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < fleet.size(); ++i) {
      const WorkerRecord& worker = fleet.At(i);
      if (!MayPrefillFor(input, decode, worker) || !Takes(input, fleet, worker)) continue;
      const double us = CostUs(input, fleet, worker);
      if (us >= least_us) continue;
      best = &worker;
      least_us = us;
    }
    return best;
  }

  const PlacementRule rule_;
  const ServiceObjectives objectives_;
  const RoutingOptions routing_;
  const FleetTruth& truth_;
  mutable uint64_t known_request_ = 0;
  mutable bool known_hopeless_ = false;
};

PlacementRule DrawRule(SeededRandom& random, int32_t workers) {
  PlacementRule rule;
  rule.seed = random.Next();
  rule.compute_weight = 4 * random.Uniform();
  if (random.Below(2) == 0) rule.decode_weight_us = 200 * random.Uniform();
  if (random.Below(2) == 0) rule.noise = 0.3 * random.Uniform();
  const auto some = static_cast<uint64_t>(std::max(1, workers / 2));
  if (random.Below(2) == 0) rule.sacrificed = static_cast<int32_t>(1 + random.Below(some));
  if (random.Below(4) == 0 && workers > 1) {
    rule.long_workers = static_cast<int32_t>(1 + random.Below(some));
    rule.long_tokens = static_cast<int32_t>(1000 * std::exp(4 * random.Uniform()));
  }
  return rule;
}

PlacementRule ChangedRule(PlacementRule rule, SeededRandom& random, int32_t workers) {
  const PlacementRule other = DrawRule(random, workers);
  rule.seed = other.seed;
  switch (random.Below(5)) {
    case 0:
      rule.compute_weight *= 0.7 + 0.6 * random.Uniform();
      break;
    case 1:
      rule.decode_weight_us = other.decode_weight_us;
      break;
    case 2:
      rule.noise = other.noise * random.Uniform();
      break;
    case 3:
      rule.sacrificed = other.sacrificed;
      break;
    default:
      rule.long_workers = other.long_workers;
      rule.long_tokens = other.long_tokens;
  }
  return rule;
}

// True if an idle worker that has all that can be cached would serve the request well enough.
bool CouldBeGood(const LeastWork& request, const ServiceObjectives& objectives,
                 const StepTimes& times) {
  const double first_ms = times.LeastPrefillUs(request.cached_tokens, request.prompt_tokens) / 1000;
  const double token_ms = times.profile().decode.At(1, request.prompt_tokens) / 1000;
  const double all_ms = first_ms + token_ms * (request.output_tokens - 1);
  const bool decodes = request.output_tokens > 1;
  return first_ms <= objectives.ttft_ms.value_or(first_ms) &&
         (!decodes || token_ms <= objectives.tpot_ms.value_or(token_ms)) &&
         (!decodes || token_ms <= objectives.itl_ms.value_or(token_ms)) &&
         all_ms <= objectives.e2e_ms.value_or(all_ms);
}

// The most requests that fit into the windows of this length. Requests of a window must have their
// first tokens at most the objective after its end.
int64_t FitIntoWindows(const std::map<int64_t, std::vector<double>>& work_of_window,
                       double capacity_us) {
  int64_t fit = 0;
  for (const auto& [window, work] : work_of_window) {
    std::vector<double> sorted = work;
    std::sort(sorted.begin(), sorted.end());
    double used_us = 0;
    for (const double us : sorted) {
      used_us += us;
      if (used_us > capacity_us) break;
      ++fit;
    }
  }
  return fit;
}

}  // namespace

std::unique_ptr<RoutingPolicy> MakeClairvoyantPolicy(const PlacementRule& rule,
                                                     const ServiceObjectives& objectives,
                                                     const RoutingOptions& routing,
                                                     const FleetTruth& truth) {
  return std::make_unique<ClairvoyantPolicy>(rule, objectives, routing, truth);
}

OracleResult SearchPlacements(const OracleOptions& options, const PlayRun& play,
                              const std::function<void(int32_t, int64_t)>& on_progress) {
  OracleResult result;
  const std::vector<RequestRecord> own = play({});
  result.policy_good = result.good = GoodOf(own, options.objectives);
  double best_ms = MeanFirstTokenMs(own);
  std::optional<PlacementRule> parent;  // of the best search with a rule
  int64_t parent_good = -1;
  double parent_ms = 0;
  SeededRandom random(options.seed);
  for (int32_t search = 1; search < options.searches; ++search) {
    const bool is_free = !parent || search <= options.searches / 4;
    const PlacementRule rule =
        is_free ? DrawRule(random, options.workers) : ChangedRule(*parent, random, options.workers);
    const std::vector<RequestRecord> records =
        play([&](const RoutingOptions& routing, const FleetTruth& truth) {
          return MakeClairvoyantPolicy(rule, options.objectives, routing, truth);
        });
    const int64_t good = GoodOf(records, options.objectives);
    const double ms = MeanFirstTokenMs(records);
    if (good > parent_good || (good == parent_good && ms < parent_ms)) {
      parent = rule;
      parent_good = good;
      parent_ms = ms;
    }
    if (good > result.good || (good == result.good && ms < best_ms)) {
      result.good = good;
      result.best_search = search;
      result.rule = rule;
      best_ms = ms;
    }
    on_progress(search + 1, result.good);
  }
  return result;
}

int64_t RelaxedBound(std::span<const LeastWork> requests, const ServiceObjectives& objectives,
                     const StepTimes& times, int32_t workers) {
  std::vector<const LeastWork*> possible;
  for (const LeastWork& request : requests) {
    if (CouldBeGood(request, objectives, times)) possible.push_back(&request);
  }
  auto bound = static_cast<int64_t>(possible.size());
  if (!objectives.ttft_ms) return bound;
  for (const int64_t window_us : {5'000'000, 15'000'000, 60'000'000, 300'000'000}) {
    std::map<int64_t, std::vector<double>> work;
    for (const LeastWork* request : possible) {
      work[request->at_us / window_us].push_back(
          times.LeastPrefillUs(request->cached_tokens, request->prompt_tokens));
    }
    const double capacity_us =
        workers * (static_cast<double>(window_us) + 1000 * *objectives.ttft_ms);
    bound = std::min(bound, FitIntoWindows(work, capacity_us));
  }
  return bound;
}

}  // namespace baton
