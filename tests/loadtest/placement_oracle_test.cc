#include "loadtest/placement_oracle.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/loadtest/simulated_fleets.h"

namespace baton {
namespace {

ServiceObjectives FirstTokenWithin(double ms) {
  ServiceObjectives objectives;
  objectives.ttft_ms = ms;
  return objectives;
}
const ServiceObjectives kWithin300 = FirstTokenWithin(300);

LeastWork Prompt(int64_t at_us, int32_t tokens) {
  return {.at_us = at_us, .prompt_tokens = tokens, .cached_tokens = 0, .output_tokens = 1};
}

TEST(RelaxedBound, CountsTheRequestsThatAnIdleWorkerCouldServe) {
  const StepTimes times(ComputedProfile());
  // 40 us a token: 1,000 tokens take 40 ms and 20,000 take 0.8 s.
  const std::vector<LeastWork> requests = {Prompt(0, 1000), Prompt(1'000'000, 20'000),
                                           Prompt(2'000'000, 1000)};
  EXPECT_EQ(RelaxedBound(requests, kWithin300, times, 1), 2);
  EXPECT_EQ(RelaxedBound(requests, FirstTokenWithin(2000), times, 1), 3);
}

TEST(RelaxedBound, FallsWhereTheWorkOfAWindowExceedsTheFleet) {
  const StepTimes times(ComputedProfile());
  std::vector<LeastWork> requests;  // 400 s of work at one moment
  for (int i = 0; i < 10'000; ++i) requests.push_back(Prompt(0, 1000));
  const int64_t one = RelaxedBound(requests, kWithin300, times, 1);
  EXPECT_LT(one, 200);
  EXPECT_GT(one, 100);
  EXPECT_NEAR(static_cast<double>(RelaxedBound(requests, kWithin300, times, 10)),
              10.0 * static_cast<double>(one), 20);
}

TEST(PlacementOracle, IsAtLeastAsGoodAsThePolicyAndAtMostTheBound) {
  for (const int32_t prefill_workers : {0, 2}) {
    SimulationOptions options = SmallSimulation(4, 60, 300);
    options.fleet.prefill_workers = prefill_workers;
    options.objectives = kWithin300;
    const Simulation simulation(options, ComputedProfile(), {}, nullptr);
    int reports = 0;
    const auto ask = [&] { return simulation.AskOracle(12, [&](int32_t, int64_t) { ++reports; }); };
    const auto oracle = ask();
    ASSERT_TRUE(oracle.ok());
    EXPECT_EQ(reports, 11);
    EXPECT_GE(oracle->result.good, oracle->result.policy_good);
    EXPECT_LE(oracle->result.good, oracle->bound);
    EXPECT_GT(oracle->result.policy_good, 0);
    EXPECT_EQ(ask()->result.good, oracle->result.good) << "the same seed";
  }
}

// Without knowledge of the true backlog, a blind policy is worse than the oracle.
TEST(PlacementOracle, BeatsABlindPolicy) {
  SimulationOptions options = SmallSimulation(6, 70, 400);
  options.fleet.routing.policy = "random";
  options.fleet.routing.pull_prefixes = false;
  options.objectives = kWithin300;
  const auto oracle =
      Simulation(options, ComputedProfile(), {}, nullptr).AskOracle(20, [](int32_t, int64_t) {});
  ASSERT_TRUE(oracle.ok());
  EXPECT_GT(oracle->result.good, oracle->result.policy_good);
  EXPECT_TRUE(oracle->result.rule.has_value());
}

}  // namespace
}  // namespace baton
