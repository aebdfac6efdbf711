#include "loadtest/simulation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/clock.h"
#include "tests/loadtest/simulated_fleets.h"

namespace baton {
namespace {

TEST(Simulation, LeavesOutTheWarmUp) {
  SimulationOptions options = SmallSimulation(4, 20, 120);
  options.warmup = 20;
  const SimulatedRun run = PlaySmall(options);
  ASSERT_EQ(run.records.size(), 100u);
  EXPECT_EQ(run.records.front().number, 20);
}

TEST(Simulation, FindsAHigherRateForMoreWorkers) {
  const auto found = [](int32_t workers) {
    SimulationOptions options = SmallSimulation(workers, 4, 300);
    options.objectives.ttft_ms = 500;
    const Simulation simulation(options, ComputedProfile(), {}, nullptr);
    int steps = 0;
    const auto rate = simulation.FindRate(0.04, 1000, [&](double, const RateStep&) { ++steps; });
    EXPECT_TRUE(rate.ok());
    EXPECT_TRUE(rate->result.has_value());
    EXPECT_EQ(static_cast<size_t>(steps), rate->steps.size());
    EXPECT_EQ(rate->run.records.size(), 300u);
    return rate->result ? rate->result->rate_per_s : 0;
  };
  const double two = found(2);
  const double eight = found(8);
  EXPECT_GT(two, 1);
  EXPECT_GT(eight, 2.5 * two);
}

TEST(Simulation, FindsTheBestShareOfPrefillWorkers) {
  SimulationOptions options = SmallSimulation(8, 30, 300);
  const Simulation simulation(options, ComputedProfile(), {}, nullptr);
  std::vector<TriedShare> tried;
  const auto best = simulation.FindShare([&](const TriedShare& share) { tried.push_back(share); });
  ASSERT_TRUE(best.ok());
  ASSERT_EQ(tried.size(), 8u);
  for (const TriedShare& share : tried) {
    EXPECT_GE(share.mean_e2e_ms, best->mean_e2e_ms) << share.prefill_workers;
    EXPECT_EQ(share.requests, 300);
  }
}

TEST(Simulation, PlaysATraceAtTheRateOfTheOptions) {
  SimulationOptions options = SmallSimulation(2, 5, 0);
  options.workload.kind = WorkloadKind::kMooncake;
  options.run.arrivals.kind = ArrivalKind::kTrace;
  options.scales_trace = true;
  std::vector<TracedRequest> trace;
  for (int i = 0; i < 11; ++i) {
    trace.push_back({.at_us = i * 1'000'000,
                     .prompt_tokens = 600,
                     .output_tokens = 3,
                     .hash_ids = {1, static_cast<uint64_t>(2 + i)}});
  }
  const auto run = Simulation(options, ComputedProfile(), trace, nullptr).Play();
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->records.size(), 11u);
  EXPECT_NEAR(static_cast<double>(run->records.back().intended_us), 2e6, 2000);
  EXPECT_GT(run->figures.cached_tokens, 0) << "equal ids are equal tokens";
}

TEST(Simulation, FiguresSayWhatTheSimulatorDid) {
  SimulationOptions options = SmallSimulation(4, 20, 50);
  const SystemClock wall;
  const auto run = Simulation(options, ComputedProfile(), {}, &wall).Play();
  ASSERT_TRUE(run.ok());
  std::vector<std::string> names;
  for (const MoreFigure& figure : FiguresOf(*run, options.fleet)) names.push_back(figure.name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "prefill_workers", "local_prefill_share", "pull_share", "preemptions",
                       "role_changes", "wanted_prefill_workers", "max_over_mean_load",
                       "window_max_over_mean_load", "events_per_s", "decisions_per_s"}));
  EXPECT_EQ(run->figures.decisions, 50);
  EXPECT_GT(run->figures.events, 50);
  for (const MoreFigure& figure : FiguresOf(std::nullopt, "needs --oracle")) {
    EXPECT_FALSE(figure.value.has_value());
    EXPECT_EQ(figure.absent, "needs --oracle");
  }
  const Simulation::OracleFigures oracle = {.result = {.good = 40, .policy_good = 38, .rule = {}},
                                            .bound = 50};
  EXPECT_DOUBLE_EQ(*FiguresOf(oracle, "").front().value, 0.95);
}

}  // namespace
}  // namespace baton
