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
#include "bench/fleet_simulation.h"
#include "bench/peer_policies.h"
#include "bench/routing_scenarios.h"
#include "bench/timed_trace.h"
#include "common/command_line.h"

namespace baton {
namespace {

constexpr char kSimulated[] =
    "Times are simulated, except decisions_per_s. For it, the router and the simulated workers "
    "run in one thread.";

struct BenchOptions {
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
  FleetOptions fleet;
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

struct Limits {
  double cached_tokens = 0;
  double uncached_tokens_per_request = 0;
  double first_token_p50_ms = 0;
  double first_token_p99_ms = 0;
};

Limits LimitsOf(const SimulatedTrace& trace, const ServiceModel& model) {
  Limits limits;
  std::vector<double> alone_ms;
  for (const auto& request : trace.requests()) {
    limits.cached_tokens += request.infinite_cache_tokens;
    limits.uncached_tokens_per_request += request.prompt_tokens - request.infinite_cache_tokens;
    alone_ms.push_back(model.PrefillUs(request.infinite_cache_tokens, request.prompt_tokens) / 1e3);
  }
  limits.uncached_tokens_per_request /= static_cast<double>(trace.requests().size());
  limits.first_token_p50_ms = Quantile(alone_ms, 0.5);
  limits.first_token_p99_ms = Quantile(alone_ms, 0.99);
  return limits;
}

using MakePolicy =
    std::function<std::unique_ptr<RoutingPolicy>(const RoutingOptions&, const ContextTokens*)>;
struct NamedPolicy {
  std::string name;
  MakePolicy make;
};

// Baton's own policies, the default first, then the rules of other projects.
std::vector<NamedPolicy> AllPolicies() {
  std::vector<NamedPolicy> policies;
  for (const std::string& name : RoutingPolicyNames()) {
    policies.push_back({name, [name](RoutingOptions options, const ContextTokens*) {
                          options.policy = name;
                          return MakeRoutingPolicy(options);
                        }});
  }
  policies.push_back(
      {"overlap-and-blocks", [](const RoutingOptions& options, const ContextTokens* context) {
         return std::make_unique<OverlapAndBlocksPolicy>(options, context);
       }});
  policies.push_back({"match-or-balance", [](const RoutingOptions& options, const ContextTokens*) {
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
  void Add(const std::string& policy, bool is_default, const FleetFigures& run,
           const Limits& limits, double requests) {
    const double hit_share = run.cached_tokens / std::max(1.0, limits.cached_tokens);
    const double uncached = run.computed_tokens / requests;
    const double p50 = Quantile(run.first_token_ms, 0.5);
    const double p99 = Quantile(run.first_token_ms, 0.99);
    const double gap = Mean(run.inter_token_ms);
    std::printf("%-18s %9.4f %9.3f %9.3f %9.0f %10.1f %10.1f %10.1f %9.2f %6.3f %7.3f %11.0f\n",
                policy.c_str(), hit_share, run.max_over_mean_load, run.window_max_over_mean_load,
                uncached, p50, p99, Mean(run.first_token_ms), gap, run.local_prefills / requests,
                run.pulls / requests, run.decisions_per_s);
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
      Figure("ttft_mean_ms" + end, Mean(run.first_token_ms), "ms", {});
      Figure("inter_token_mean_ms" + end, gap, "ms", {});
      Figure("local_prefill_share" + end, run.local_prefills / requests, "share", {});
      Figure("pull_share" + end, run.pulls / requests, "share", {});
      Figure("pulled_tokens_per_request" + end, run.pulled_tokens / requests, "tokens", {});
      Figure("decisions_per_s" + end, run.decisions_per_s, "1/s", {});
    }
  }
  static void ScenarioHeading() {
    std::printf("%-18s %8s %9s %8s %10s %10s %10s %8s\n", "policy", "workers", "max/mean",
                "holders", "TTFT p50", "TTFT p99", "TTFT mean", "pulls");
  }
  // Reports on the prompts from `first` on. `holders` workers have their shared blocks at the end.
  void AddScenario(std::string name, const std::string& policy, const FleetFigures& run,
                   size_t first, int32_t workers, int32_t holders, double alone_ms) {
    std::vector<double> prompts(static_cast<size_t>(workers));
    for (size_t i = first; i < run.prefilled_by.size(); ++i) ++prompts[run.prefilled_by[i]];
    const auto used = static_cast<double>(
        std::count_if(prompts.begin(), prompts.end(), [](double count) { return count > 0; }));
    const double uneven = *std::max_element(prompts.begin(), prompts.end()) / Mean(prompts);
    const std::vector<double> first_token_ms(run.first_token_ms.begin() + first,
                                             run.first_token_ms.end());
    const double p50 = Quantile(first_token_ms, 0.5);
    const double p99 = Quantile(first_token_ms, 0.99);
    std::printf("%-18s %8.0f %9.3f %8d %10.1f %10.1f %10.1f %8.0f\n", policy.c_str(), used, uneven,
                holders, p50, p99, Mean(first_token_ms), run.pulls);
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
    Figure(name + "pulls" + end, run.pulls, "pulls", {});
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
  return routing;
}

void Simulate(const BenchOptions& options, const SimulatedTrace& trace,
              const std::vector<NamedPolicy>& policies) {
  const Limits limits = LimitsOf(trace, options.fleet.model);
  const auto requests = static_cast<double>(trace.requests().size());
  std::printf(
      "one cache that never evicts: %.0f uncached tokens per request; alone on a worker with its "
      "hits: TTFT p50 %.1f ms, p99 %.1f ms\n\n",
      limits.uncached_tokens_per_request, limits.first_token_p50_ms, limits.first_token_p99_ms);
  Report report;
  report.AddCondition(kSimulated);
  Report::Heading();
  const RoutingOptions routing = PolicyOptions(options);
  for (const NamedPolicy& policy : policies) {
    FleetSimulation fleet(options.fleet, &trace);
    const auto it = policy.make(routing, fleet.context_tokens());
    const bool is_default = policy.name == RoutingOptions{}.policy;
    report.Add(policy.name, is_default, fleet.Run(*it), limits, requests);
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
  const SimulatedTrace trace(scenario->requests, /*copies=*/1, options.speedup, seed);
  const auto& last = trace.requests().back();
  const auto shared = trace.Blocks(last).first(scenario->shared_blocks);
  const double alone_ms =
      options.fleet.model.PrefillUs(scenario->cached_tokens, last.prompt_tokens) / 1e3;
  std::printf(
      "%s: %zu prompts that share %zu blocks of %d tokens, %d workers, %d of them for prefill "
      "only; alone on a worker with its hits: %.1f ms; seed %lld\n\n",
      options.scenario.c_str(), trace.requests().size() - scenario->first, shared.size(),
      kTraceBlockTokens, workers, options.fleet.prefill_workers, alone_ms,
      static_cast<long long>(options.seed));
  Report report;
  report.AddCondition(kSimulated);
  Report::ScenarioHeading();
  for (const NamedPolicy& policy : policies) {
    FleetSimulation fleet(options.fleet, &trace);
    const auto it = policy.make(PolicyOptions(options), fleet.context_tokens());
    const FleetFigures run = fleet.Run(*it);
    report.AddScenario(options.scenario, policy.name, run, scenario->first, workers,
                       fleet.Holders(shared), alone_ms);
  }
  report.PrintJson(options.seed);
  return 0;
}

int Run(BenchOptions options) {
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
  std::vector<TimedRequest> requests;
  if (options.trace.empty()) {
    requests = MakeTimedTrace(options.synthetic, static_cast<uint64_t>(options.seed));
  } else {
    auto read = ReadTimedTrace(options.trace);
    if (!read.ok()) {
      std::cerr << read.status() << "\n";
      return 2;
    }
    requests = std::move(*read);
  }
  if (options.copies == 0) options.copies = std::max(1, options.fleet.workers / 4);
  const SimulatedTrace trace(requests, options.copies, options.speedup,
                             static_cast<uint64_t>(options.seed));
  std::printf(
      "%zu requests (%d copies of the trace, %.2f times as fast), %zu distinct blocks of %d "
      "tokens; "
      "%d workers, %d of them for prefill only, with LRU caches of %zu blocks; seed %lld\n",
      trace.requests().size(), options.copies, options.speedup, trace.distinct_blocks(),
      kTraceBlockTokens, options.fleet.workers, options.fleet.prefill_workers,
      options.fleet.capacity, static_cast<long long>(options.seed));
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
  line.Add("--workers", &options.fleet.workers, "Workers").Range(1, 4096).ShowDefault();
  line.Add("--prefill-workers", &options.fleet.prefill_workers,
           "Number of workers that only prefill; the others only decode. 0: all do both")
      .Range(0, 4095)
      .ShowDefault();
  line.Add("--capacity", &options.fleet.capacity, "Blocks of a worker's cache")
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
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  if (options.trace.empty() && options.synthetic == 0) options.synthetic = 10'000;
  return baton::Run(std::move(options));
}
