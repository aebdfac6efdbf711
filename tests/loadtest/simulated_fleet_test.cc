#include "loadtest/simulated_fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tests/loadtest/simulated_fleets.h"

namespace baton {
namespace {

int64_t WholeAnswers(const SimulatedRun& run) {
  return std::count_if(run.records.begin(), run.records.end(), [](const RequestRecord& record) {
    return record.outcome == RequestOutcome::kWhole;
  });
}

// Times of all tokens, as one list.
std::vector<int64_t> TimesOf(const SimulatedRun& run) {
  std::vector<int64_t> times;
  for (const RequestRecord& record : run.records) {
    times.push_back(record.intended_us);
    times.push_back(record.first_content_us);
    times.push_back(record.end_us);
    times.push_back(record.cached_tokens);
    for (const int32_t gap_us : record.gaps_us) times.push_back(gap_us);
  }
  return times;
}

TEST(SimulatedFleet, EveryRequestGetsItsWholeAnswer) {
  for (const int32_t prefill_workers : {0, 2}) {
    for (const int32_t routers : {1, 3}) {
      SimulationOptions options = SmallSimulation(6, 30, 500);
      options.fleet.prefill_workers = prefill_workers;
      options.fleet.routers = routers;
      const SimulatedRun run = PlaySmall(options);
      ASSERT_EQ(run.records.size(), 500u);
      EXPECT_EQ(WholeAnswers(run), 500);
      for (const RequestRecord& record : run.records) {
        EXPECT_EQ(static_cast<int32_t>(record.gaps_us.size()) + 1, record.output_tokens);
        EXPECT_GE(record.first_content_us, record.sent_us);
        EXPECT_EQ(record.sent_us, record.intended_us);
      }
      // Workers of both roles may compute prompts for each other.
      EXPECT_GT(run.figures.local_prefills, prefill_workers > 0 ? -1 : 0);
      EXPECT_LT(run.figures.local_prefills, prefill_workers > 0 ? 500 : 501);
      EXPECT_GT(run.figures.cached_tokens, 0);
      EXPECT_GE(run.figures.max_over_mean_load, 1);
    }
  }
}

TEST(SimulatedFleet, TheSameSeedGivesTheSameTimes) {
  for (const int32_t prefill_workers : {0, 3}) {
    SimulationOptions options = SmallSimulation(12, 60, 400);
    options.fleet.prefill_workers = prefill_workers;
    options.fleet.routers = 2;
    const SimulatedRun first = PlaySmall(options);
    EXPECT_EQ(TimesOf(PlaySmall(options)), TimesOf(first));
    options.run.arrivals.seed = 2;
    EXPECT_NE(TimesOf(PlaySmall(options)), TimesOf(first));
  }
}

TEST(SimulatedFleet, MoreWorkersAnswerSoonerAndAnOverloadedFleetQueues) {
  const double few = MeanTtftMs(PlaySmall(SmallSimulation(2, 40, 400)));
  const double some = MeanTtftMs(PlaySmall(SmallSimulation(4, 40, 400)));
  const double many = MeanTtftMs(PlaySmall(SmallSimulation(16, 40, 400)));
  EXPECT_GT(few, 2 * some);
  EXPECT_GT(some, many);
}

TEST(SimulatedFleet, TheKvAwarePolicyFindsMoreOfThePrefixesThanRoundRobin) {
  SimulationOptions options = SmallSimulation(10, 20, 400);
  options.fleet.routing.pull_prefixes = false;
  const SimulatedRun aware = PlaySmall(options);
  options.fleet.routing.policy = "round-robin";
  const SimulatedRun blind = PlaySmall(options);
  EXPECT_GT(aware.figures.cached_tokens, blind.figures.cached_tokens);
  EXPECT_LT(MeanTtftMs(aware), MeanTtftMs(blind));
}

TEST(SimulatedFleet, WorkersPullPrefixesThatOthersHave) {
  SimulationOptions options = SmallSimulation(8, 40, 400);
  options.fleet.routing.policy = "round-robin";
  const SimulatedRun run = PlaySmall(options);
  EXPECT_GT(run.figures.pulls, 0);
  EXPECT_GT(run.figures.pulled_tokens, 0);
  EXPECT_EQ(WholeAnswers(run), 400);
}

TEST(SimulatedFleet, LaterTurnsOfAChatFindTheEarlierOnesInTheCache) {
  SimulationOptions options = SmallSimulation(4, 2, 200);
  options.workload.kind = WorkloadKind::kChat;
  options.workload.turns = 4;
  const SimulatedRun run = PlaySmall(options);
  EXPECT_EQ(WholeAnswers(run), 200);
  int64_t later = 0, cached = 0;
  for (const RequestRecord& record : run.records) {
    if (record.turn == 0) continue;
    ++later;
    cached += record.cached_tokens > record.prompt_tokens / 3 ? 1 : 0;
  }
  EXPECT_GT(later, 50);
  EXPECT_GT(cached, 9 * later / 10);
}

TEST(SimulatedFleet, APromptThatFitsNoWorkerIsRefusedAndTheOthersAreAnswered) {
  SimulationOptions options = SmallSimulation(3, 10, 100);
  options.fleet.worker.pool_tokens = 3072;
  options.workload.length_spread = 1;
  const SimulatedRun run = PlaySmall(options);
  EXPECT_EQ(run.records.size(), 100u);
  EXPECT_GT(WholeAnswers(run), 0);
  EXPECT_LT(WholeAnswers(run), 100);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome == RequestOutcome::kWhole, record.error.empty());
  }
}

TEST(SimulatedFleet, ClosedArrivalsKeepTheirNumberOfClients) {
  SimulationOptions options = SmallSimulation(4, 1, 100);
  options.run.arrivals.kind = ArrivalKind::kClosed;
  options.run.concurrency = 5;
  const SimulatedRun run = PlaySmall(options);
  EXPECT_EQ(WholeAnswers(run), 100);
  // At the time of any request, at most four others run.
  for (const RequestRecord& record : run.records) {
    const auto running =
        std::count_if(run.records.begin(), run.records.end(), [&](const RequestRecord& other) {
          return other.sent_us < record.sent_us && other.end_us > record.sent_us;
        });
    EXPECT_LE(running, 5);
  }
}

// A fleet larger than RoutingOptions::candidates.
TEST(SimulatedFleet, CandidatesGiveNearlyTheTimesOfAFullScan) {
  SimulationOptions options = SmallSimulation(150, 500, 3000);
  options.workload.prefixes = 60;
  const double some = MeanTtftMs(PlaySmall(options));
  options.fleet.routing.candidates = 0;
  const double all = MeanTtftMs(PlaySmall(options));
  EXPECT_NEAR(some, all, 0.05 * all);
}

SimulationOptions SwingingFleet() {
  SimulationOptions options = SwingingSimulation(4, 7, 480);
  options.fleet.prefill_workers = 2;
  options.fleet.roles.period_ms = 2000;
  options.workload.output_tokens = 3072;
  options.workload.length_spread = 0.3;
  options.workload.swing_period_s = 240;
  return options;
}

std::vector<std::pair<int64_t, int32_t>> ChangesOf(const SimulatedRun& run) {
  std::vector<std::pair<int64_t, int32_t>> out;
  for (const RoleChange& change : run.figures.role_changes) {
    out.emplace_back(change.at_us, change.worker);
  }
  return out;
}

TEST(SimulatedFleet, ThePlannerChangesRolesAfterEachSwing) {
  const SimulationOptions options = SwingingFleet();
  const SimulatedRun run = PlaySmall(options);
  EXPECT_EQ(WholeAnswers(run), std::ssize(run.records));
  std::set<int64_t> swings;
  for (const RoleChange& change : run.figures.role_changes) {
    swings.insert(change.at_us / options.workload.swing_half_us());
  }
  EXPECT_EQ(swings, (std::set<int64_t>{0, 1, 2, 3}));
  const SimulatedRun again = PlaySmall(options);
  EXPECT_EQ(ChangesOf(again), ChangesOf(run)) << "the same seed gives the same changes";
  EXPECT_EQ(TimesOf(again), TimesOf(run));
}

TEST(SimulatedFleet, ThePlannerLeavesAConstantLoadAlone) {
  SimulationOptions options = SwingingFleet();
  options.workload.kind = WorkloadKind::kSynthetic;
  options.workload.output_tokens = 256;
  options.fleet.prefill_workers = 3;
  options.fleet.roles.period_ms = 10'000;
  const SimulatedRun run = PlaySmall(options);
  EXPECT_TRUE(ChangesOf(run).empty());
  EXPECT_GE(run.figures.wanted_prefill_workers, 0) << "the planner knew enough to change roles";
}

TEST(SimulatedFleet, ThePlannerOnlyAdvisesIfItMayNotChangeRoles) {
  SimulationOptions options = SwingingFleet();
  options.run.duration_us = 60'000'000;
  options.fleet.roles.mode = RolePlannerMode::kAdvise;
  const SimulatedRun advised = PlaySmall(options);
  EXPECT_TRUE(ChangesOf(advised).empty());
  EXPECT_GE(advised.figures.wanted_prefill_workers, 0);
  options.fleet.roles.mode = RolePlannerMode::kOff;
  const SimulatedRun off = PlaySmall(options);
  EXPECT_EQ(off.figures.wanted_prefill_workers, -1);
  EXPECT_EQ(TimesOf(off), TimesOf(advised));
}

TEST(SimulatedFleet, RolesChangeAtTheTimesOfASchedule) {
  SimulationOptions options = SwingingFleet();
  options.fleet.roles.mode = RolePlannerMode::kOff;
  options.run.duration_us = 90'000'000;
  const SimulatedRun fixed = PlaySmall(options);
  options.fleet.role_splits = {{.at_us = 60'000'000, .prefill_workers = 1}};
  const SimulatedRun changed = PlaySmall(options);
  EXPECT_EQ(WholeAnswers(changed), std::ssize(changed.records));
  const auto first_difference = std::mismatch(
      fixed.records.begin(), fixed.records.end(), changed.records.begin(), changed.records.end(),
      [](const auto& a, const auto& b) { return a.end_us == b.end_us; });
  ASSERT_NE(first_difference.first, fixed.records.end());
  EXPECT_GE(first_difference.first->end_us, 60'000'000);
}

TEST(SimulatedFleet, KnowsTheLeastWorkOfEachRequest) {
  SimulationOptions options = SmallSimulation(4, 20, 200);
  options.fleet.keeps_least_work = true;
  const SimulatedRun run = PlaySmall(options);
  ASSERT_EQ(run.figures.least_work.size(), 200u);
  int64_t least_cached = 0;
  for (const LeastWork& work : run.figures.least_work) {
    EXPECT_LT(work.cached_tokens, work.prompt_tokens);
    least_cached += work.cached_tokens;
  }
  EXPECT_GE(least_cached, run.figures.cached_tokens);
}

}  // namespace
}  // namespace baton
