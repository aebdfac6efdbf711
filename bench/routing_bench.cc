// Benchmark of routing policies in simulated time. There are two modes:
//   trace     replays a trace of requests. Reports the share of possible cache hits, the balance of
//             the load, and the time to the first token.
//   scenario  plays a scenario of routing_scenarios.h. Reports how many workers computed its
//             prompts, how evenly, and how many workers hold the shared blocks at the end.
//
// The limits are: for hits and uncached tokens, one cache that never evicts; for the balance, equal
// loads; for the first token, an idle worker that has all those hits.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bench/figure_list.h"
#include "bench/peer_policies.h"
#include "bench/routing_scenarios.h"
#include "bench/timed_trace.h"
#include "common/clock.h"
#include "common/command_line.h"
#include "loadtest/load_run.h"
#include "loadtest/prompt_tokens.h"
#include "loadtest/simulated_fleet.h"
#include "loadtest/workload.h"

namespace baton {
namespace {

constexpr char kSimulated[] =
    "Times are simulated, except decisions_per_s. For it, the router and the simulated workers "
    "run in one thread.";

struct BenchOptions {
  int32_t candidates = RoutingOptions{}.candidates;
  std::string trace;
  size_t synthetic = 0;
  std::string policy = "all";
  std::string scenario;
  bool pull_prefixes = false;
  int64_t seed = 1;
  double speedup = 1;
  int copies = 0;
  double local_prefill_penalty = RoutingOptions{}.local_prefill_penalty;
  double compute_weight = RoutingOptions{}.compute_weight;
  double decode_weight = RoutingOptions{}.decode_weight;
  size_t capacity = 16'384;  // blocks of kMooncakeBlockTokens of each worker's cache
  SimulatedFleetOptions fleet;
};

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<int64_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

constexpr int32_t kStepTokens = 2048;

// One run of a fleet under a policy.
struct PlayedRun {
  FleetFigures figures;
  std::vector<double> first_token_ms;  // by request, in trace order
  std::vector<double> inter_token_ms;  // mean of each answer
  int32_t holders = 0;                 // workers that have the shared prefix at the end
};

struct Limits {
  double cached_tokens = 0;
  double uncached_tokens_per_request = 0;
  double first_token_p50_ms = 0;
  double first_token_p99_ms = 0;
};

double AloneMs(const StepTimes& times, int64_t cached, int64_t total) {
  return (times.start_us() + times.PrefillUs(cached, total, kStepTokens)) / 1e3;
}

Limits LimitsOf(const std::vector<LeastWork>& requests, const StepTimes& times) {
  Limits limits;
  std::vector<double> alone_ms;
  for (const LeastWork& request : requests) {
    limits.cached_tokens += request.cached_tokens;
    limits.uncached_tokens_per_request += request.prompt_tokens - request.cached_tokens;
    alone_ms.push_back(AloneMs(times, request.cached_tokens, request.prompt_tokens));
  }
  limits.uncached_tokens_per_request /= static_cast<double>(requests.size());
  limits.first_token_p50_ms = Quantile(alone_ms, 0.5);
  limits.first_token_p99_ms = Quantile(alone_ms, 0.99);
  return limits;
}

struct NamedPolicy {
  std::string name;
  SimulatedFleet::MakePolicy make;  // empty: Baton's policy of this name
};

// Baton's own policies, the default first, then the rules of other projects.
std::vector<NamedPolicy> AllPolicies() {
  std::vector<NamedPolicy> policies;
  for (const std::string& name : RoutingPolicyNames()) policies.push_back({name, {}});
  policies.push_back(
      {"overlap-and-blocks", [](const RoutingOptions& options, const FleetTruth& truth) {
         return std::make_unique<OverlapAndBlocksPolicy>(options, &truth);
       }});
  policies.push_back({"match-or-balance", [](const RoutingOptions& options, const FleetTruth&) {
                        return std::make_unique<MatchOrBalancePolicy>(options);
                      }});
  return policies;
}

class Report {
 public:
  static void Heading() {
    std::printf("%-18s %9s %9s %9s %9s %10s %10s %10s %9s %6s %7s %11s\n", "policy", "hit share",
                "max/mean", "in 1 min", "uncached", "TTFT p50", "TTFT p99", "TTFT mean",
                "token gap", "local", "pulled", "decisions/s");
  }
  // Reports figures under the policy's name; for the default policy also under plain names.
  void Add(const std::string& policy, bool is_default, const PlayedRun& played,
           const Limits& limits, double requests) {
    const FleetFigures& run = played.figures;
    const double hit_share =
        static_cast<double>(run.cached_tokens) / std::max(1.0, limits.cached_tokens);
    const double uncached = static_cast<double>(run.computed_tokens) / requests;
    const double p50 = Quantile(played.first_token_ms, 0.5);
    const double p99 = Quantile(played.first_token_ms, 0.99);
    const double mean = Mean(played.first_token_ms);
    const double gap = Mean(played.inter_token_ms);
    const double local = static_cast<double>(run.local_prefills) / requests;
    const double pulls = static_cast<double>(run.pulls) / requests;
    std::printf("%-18s %9.4f %9.3f %9.3f %9.0f %10.1f %10.1f %10.1f %9.2f %6.3f %7.3f %11.0f\n",
                policy.c_str(), hit_share, run.max_over_mean_load, run.window_max_over_mean_load,
                uncached, p50, p99, mean, gap, local, pulls, run.decisions_per_s());
    std::fflush(stdout);
    std::string suffix = "_" + policy;
    std::replace(suffix.begin(), suffix.end(), '-', '_');
    for (const std::string& end :
         is_default ? std::vector<std::string>{"", suffix} : std::vector<std::string>{suffix}) {
      Figure("hit_share" + end, hit_share, "share", 1);
      Figure("max_over_mean_load" + end, run.max_over_mean_load, "ratio", 1);
      Figure("window_max_over_mean_load" + end, run.window_max_over_mean_load, "ratio", 1);
      Figure("uncached_tokens_per_request" + end, uncached, "tokens",
             limits.uncached_tokens_per_request);
      Figure("ttft_p50_ms" + end, p50, "ms", limits.first_token_p50_ms);
      Figure("ttft_p99_ms" + end, p99, "ms", limits.first_token_p99_ms);
      Figure("ttft_mean_ms" + end, mean, "ms", {});
      Figure("inter_token_mean_ms" + end, gap, "ms", {});
      Figure("local_prefill_share" + end, local, "share", {});
      Figure("pull_share" + end, pulls, "share", {});
      Figure("pulled_tokens_per_request" + end, static_cast<double>(run.pulled_tokens) / requests,
             "tokens", {});
      Figure("decisions_per_s" + end, run.decisions_per_s(), "1/s", {});
    }
  }
  static void ScenarioHeading() {
    std::printf("%-18s %8s %9s %8s %10s %10s %10s %8s\n", "policy", "workers", "max/mean",
                "holders", "TTFT p50", "TTFT p99", "TTFT mean", "pulls");
  }
  // Reports on the prompts from `first` on. `holders` workers have their shared blocks at the end.
  void AddScenario(std::string name, const std::string& policy, const PlayedRun& played,
                   size_t first, int32_t workers, double alone_ms) {
    const FleetFigures& run = played.figures;
    const int32_t holders = played.holders;
    const auto pulls = static_cast<double>(run.pulls);
    std::vector<double> prompts(static_cast<size_t>(workers));
    for (size_t i = first; i < run.prefilled_by.size(); ++i) ++prompts[run.prefilled_by[i]];
    const auto used = static_cast<double>(
        std::count_if(prompts.begin(), prompts.end(), [](double count) { return count > 0; }));
    const double uneven = *std::max_element(prompts.begin(), prompts.end()) / Mean(prompts);
    const std::vector<double> first_token_ms(played.first_token_ms.begin() + first,
                                             played.first_token_ms.end());
    const double p50 = Quantile(first_token_ms, 0.5);
    const double p99 = Quantile(first_token_ms, 0.99);
    std::printf("%-18s %8.0f %9.3f %8d %10.1f %10.1f %10.1f %8.0f\n", policy.c_str(), used, uneven,
                holders, p50, p99, Mean(first_token_ms), pulls);
    std::fflush(stdout);
    name += "_";
    std::string end = "_" + policy;
    for (std::string* part : {&name, &end}) std::replace(part->begin(), part->end(), '-', '_');
    Figure(name + "workers" + end, used, "workers", workers);
    Figure(name + "max_over_mean_prompts" + end, uneven, "ratio", 1);
    Figure(name + "holders" + end, holders, "workers", {});
    Figure(name + "ttft_p50_ms" + end, p50, "ms", alone_ms);
    Figure(name + "ttft_p99_ms" + end, p99, "ms", alone_ms);
    Figure(name + "ttft_mean_ms" + end, Mean(first_token_ms), "ms", {});
    Figure(name + "pulls" + end, pulls, "pulls", {});
  }
  void AddCondition(const std::string& sentence) { figures_.AddCondition(sentence); }
  void PrintJson(int64_t seed) const { figures_.Print("routing", seed); }

 private:
  void Figure(const std::string& name, double value, const char* unit,
              std::optional<double> limit) {
    figures_.Add(name, value, unit, limit);
  }
  FigureList figures_;
};

RoutingOptions PolicyOptions(const BenchOptions& options) {
  RoutingOptions routing;
  routing.seed = options.seed;
  routing.pull_prefixes = options.pull_prefixes;
  routing.local_prefill_penalty = options.local_prefill_penalty;
  routing.compute_weight = options.compute_weight;
  routing.decode_weight = options.decode_weight;
  routing.candidates = options.candidates;
  return routing;
}

// Tokens of a prompt with these blocks, and one more.
std::vector<TokenId> TokensOf(const TraceRequest& ids, const WorkloadOptions& workload) {
  const PromptTokens tokens(workload.seed, workload.vocabulary);
  std::vector<TokenId> out;
  for (const uint64_t id : ids) {
    tokens.Append(TokenKey::kTraceBlock, id, 0, kMooncakeBlockTokens, out);
  }
  out.push_back(0);
  return out;
}

PlayedRun PlayOnce(const BenchOptions& options, const StepTimes& times,
                   const std::vector<TracedRequest>& trace, const NamedPolicy& policy,
                   const TraceRequest& shared) {
  SimulatedFleetOptions fleet = options.fleet;
  fleet.routing = PolicyOptions(options);
  fleet.keeps_least_work = true;
  if (!policy.make) fleet.routing.policy = policy.name;
  WorkloadOptions workload_options{.kind = WorkloadKind::kMooncake,
                                   .seed = static_cast<uint64_t>(options.seed)};
  const auto workload = MakeWorkload(workload_options, trace);
  CHECK(workload.ok()) << workload.status();
  LoadRun run({.arrivals = {.kind = ArrivalKind::kTrace}, .trace_speed = options.speedup},
              **workload);
  const SystemClock clock;
  SimulatedFleet simulated(fleet, &times, &clock, policy.make);
  PlayedRun played;
  for (const RequestRecord& record : simulated.Run(run)) {
    CHECK(record.outcome == RequestOutcome::kWhole) << record.error_message;
    played.first_token_ms.push_back(record.ttft_ms());
    if (record.has_tpot()) played.inter_token_ms.push_back(record.tpot_ms());
  }
  played.figures = simulated.figures();
  if (!shared.empty()) played.holders = simulated.Holders(TokensOf(shared, workload_options));
  return played;
}

void Simulate(const BenchOptions& options, const std::vector<TracedRequest>& trace,
              const std::vector<NamedPolicy>& policies) {
  const StepTimes times(ComputedProfile());
  const auto requests = static_cast<double>(trace.size());
  Report report;
  report.AddCondition(kSimulated);
  std::optional<Limits> limits;
  for (const NamedPolicy& policy : policies) {
    const PlayedRun played = PlayOnce(options, times, trace, policy, {});
    if (!limits) {
      limits = LimitsOf(played.figures.least_work, times);
      std::printf(
          "one cache that never evicts: %.0f uncached tokens per request; alone on a worker with "
          "its hits: TTFT p50 %.1f ms, p99 %.1f ms\n\n",
          limits->uncached_tokens_per_request, limits->first_token_p50_ms,
          limits->first_token_p99_ms);
      Report::Heading();
    }
    const bool is_default = policy.name == RoutingOptions{}.policy;
    report.Add(policy.name, is_default, played, *limits, requests);
  }
  report.PrintJson(options.seed);
}

int Play(const BenchOptions& options, const std::vector<NamedPolicy>& policies) {
  const int32_t workers = options.fleet.workers;
  const auto seed = static_cast<uint64_t>(options.seed);
  const std::optional<RoutingScenario> scenario = MakeScenario(options.scenario, workers, seed);
  if (!scenario) {
    std::cerr << "unknown scenario " << options.scenario << "; known: cold-burst, hot-prefix\n";
    return 2;
  }
  const StepTimes times(ComputedProfile());
  const TracedRequest& last = scenario->requests.back();
  const TraceRequest shared(last.hash_ids.begin(), last.hash_ids.begin() + scenario->shared_blocks);
  const double alone_ms = AloneMs(times, scenario->cached_tokens, last.prompt_tokens);
  std::printf(
      "%s: %zu prompts that share %zu blocks of %d tokens, %d workers, %d of them for prefill "
      "only; alone on a worker with its hits: %.1f ms; seed %lld\n\n",
      options.scenario.c_str(), scenario->requests.size() - scenario->first, shared.size(),
      kMooncakeBlockTokens, workers, options.fleet.prefill_workers, alone_ms,
      static_cast<long long>(options.seed));
  Report report;
  report.AddCondition(kSimulated);
  Report::ScenarioHeading();
  for (const NamedPolicy& policy : policies) {
    const PlayedRun played = PlayOnce(options, times, scenario->requests, policy, shared);
    report.AddScenario(options.scenario, policy.name, played, scenario->first, workers, alone_ms);
  }
  report.PrintJson(options.seed);
  return 0;
}

int Run(BenchOptions options) {
  options.fleet.worker.pool_tokens = static_cast<int64_t>(options.capacity) * kMooncakeBlockTokens;
  std::vector<NamedPolicy> policies = AllPolicies();
  if (options.policy != "all") {
    std::erase_if(policies, [&](const NamedPolicy& it) { return it.name != options.policy; });
  }
  if (policies.empty()) {
    std::cerr << "unknown policy " << options.policy << "; known: all";
    for (const NamedPolicy& policy : AllPolicies()) std::cerr << ", " << policy.name;
    std::cerr << "\n";
    return 2;
  }
  if (options.fleet.prefill_workers >= options.fleet.workers) {
    std::cerr << options.fleet.prefill_workers << " prefill workers of " << options.fleet.workers
              << " workers leave none for decode\n";
    return 2;
  }
  if (!options.scenario.empty()) return Play(options, policies);
  std::vector<TracedRequest> requests;
  if (options.trace.empty()) {
    requests = MakeTimedTrace(options.synthetic, static_cast<uint64_t>(options.seed));
  } else {
    auto read = ReadMooncakeTrace(options.trace);
    if (!read.ok()) {
      std::cerr << read.status() << "\n";
      return 2;
    }
    requests = std::move(*read);
  }
  if (options.copies == 0) options.copies = std::max(1, options.fleet.workers / 4);
  const std::vector<TracedRequest> trace =
      CopiesOf(requests, options.copies, static_cast<uint64_t>(options.seed));
  std::printf(
      "%zu requests (%d copies of the trace, %.2f times as fast); %d workers, %d of them for "
      "prefill only, with caches of %zu blocks of %d tokens; seed %lld\n",
      trace.size(), options.copies, options.speedup, options.fleet.workers,
      options.fleet.prefill_workers, options.capacity, kMooncakeBlockTokens,
      static_cast<long long>(options.seed));
  Simulate(options, trace, policies);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line(
      "Compares routing policies in simulated time. A trace has one JSON object per line, as "
      "published with Mooncake: {\"timestamp\": ms, \"input_length\", \"output_length\", "
      "\"hash_ids\": [..]}.");
  baton::BenchOptions options;
  baton::CommandLine::Option trace = line.Add("--trace", &options.trace, "Trace to replay");
  const baton::CommandLine::Option synthetic =
      line.Add("--synthetic", &options.synthetic, "Requests of a synthetic trace, if no --trace")
          .Range(1, 10'000'000);
  trace.Excludes(synthetic);
  line.Add("--scenario", &options.scenario, "Scenario instead: cold-burst or hot-prefix")
      .Excludes(trace)
      .Excludes(synthetic);
  line.AddFlag("--pull-prefixes", &options.pull_prefixes,
               "Workers may pull cached prefixes from other workers");
  line.Add("--workers", &options.fleet.workers, "Workers").Range(1, 10'000).ShowDefault();
  line.Add("--prefill-workers", &options.fleet.prefill_workers,
           "Number of workers that only prefill; the others only decode. 0: all do both")
      .Range(0, 9999)
      .ShowDefault();
  line.Add("--capacity", &options.capacity, "Blocks of 512 tokens of a worker's cache")
      .Range(1, 1 << 24)
      .ShowDefault();
  line.Add("--seed", &options.seed, "Random seed").ShowDefault();
  line.Add("--policy", &options.policy, "Name of one policy, or all").ShowDefault();
  line.Add("--speedup", &options.speedup, "Divides the trace's times")
      .Range(0.001, 1e6)
      .ShowDefault();
  line.Add("--copies", &options.copies,
           "Copies of the trace played at the same time; 0: one for every four workers")
      .Range(0, 10'000)
      .ShowDefault();
  line.Add("--local-prefill-penalty", &options.local_prefill_penalty, "As in the router")
      .Range(0.0, 100.0)
      .ShowDefault();
  line.Add("--compute-weight", &options.compute_weight, "As in the router's kv-aware policy")
      .Range(0.0, 100.0)
      .ShowDefault();
  line.Add("--decode-weight", &options.decode_weight, "As in the router's kv-aware policy")
      .Range(0.0, 100.0)
      .ShowDefault();
  line.Add("--routing-candidates", &options.candidates, "As in the router; 0: all workers")
      .Range(0, 1 << 20)
      .ShowDefault();
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  if (options.trace.empty() && options.synthetic == 0) options.synthetic = 10'000;
  return baton::Run(std::move(options));
}
