// Routing decisions among candidates, compared with decisions among all workers.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/router_core.h"
#include "tests/router/worker_reports.h"

namespace baton {
namespace {

RouterOptions Options(int32_t candidates) {
  RouterOptions options;
  options.routing.candidates = candidates;
  options.max_workers = 10'000;
  return options;
}

std::vector<Hash128> Hashes(uint64_t prompt, int shared, int units) {
  std::vector<CacheUnit> tokens;
  for (int i = 0; i < units * kUnitsPerHash; ++i) {
    tokens.push_back(i < shared * kUnitsPerHash ? CacheUnit{7} : CacheUnit{1000 + prompt});
  }
  return ChainedHashes(CacheNamespace(1), tokens);
}

// A router with a fleet that follows events.
class RoutedFleet {
 public:
  RoutedFleet(int32_t candidates, int workers, bool split)
      : core_(Options(candidates), &clock_), sequences_(static_cast<size_t>(workers) + 1) {
    for (int i = 0; i < workers; ++i) {
      const WorkerRole role = !split      ? WorkerRole::kBoth
                              : i % 2 > 0 ? WorkerRole::kDecode
                                          : WorkerRole::kPrefill;
      WorkerReport report = Report(absl::StrCat("w", i), role);
      report.available_blocks = 1 << 20;
      EXPECT_TRUE(core_.Heartbeat(report).ok());
    }
    core_.Tick();
    for (const WorkerRecord& worker : core_.Workers()) {
      EXPECT_TRUE(core_.index().Take(worker.number, {.epoch = Epoch(1), .events = {}}).ok());
    }
  }
  // The worker caches the prefix with these hashes.
  void Store(WorkerNumber worker, const std::vector<Hash128>& hashes) {
    const KvEvent event{.kind = KvEvent::Kind::kStored, .parent = {}, .hashes = hashes};
    const std::string bytes = EncodeKvEvents({&event, 1});
    const uint64_t sequence = ++sequences_[worker.value()];
    EXPECT_TRUE(core_.index()
                    .Take(worker, {.epoch = Epoch(1), .sequence = sequence, .events = bytes})
                    .ok());
  }
  absl::StatusOr<Route> Ask(const std::vector<Hash128>& hashes,
                            absl::flat_hash_set<WorkerNumber> excluded = {}) {
    return core_.ChooseRoute(
        {.prompt_hashes = hashes,
         .prompt_tokens = static_cast<int32_t>(hashes.size()) * kUnitsPerHash + 5,
         .excluded = std::move(excluded)});
  }
  void End(const Route& route) {
    core_.PrefillDone(route.plan);
    core_.WorkerDone(route.plan.decode);
    if (route.plan.prefill) core_.WorkerDone(*route.plan.prefill);
  }
  RouterCore& core() { return core_; }
  ManualClock& clock() { return clock_; }

 private:
  ManualClock clock_;
  RouterCore core_;
  std::vector<uint64_t> sequences_;
};

struct Decision {
  WorkerNumber decode, prefiller;
  int64_t first_token_us;
  bool operator==(const Decision&) const = default;
};

// Plays random requests of conversations that share a system prompt.
std::vector<Decision> Play(RoutedFleet& fleet, uint64_t seed, int requests) {
  std::mt19937_64 random(seed);
  std::vector<Decision> decisions;
  std::vector<Route> open;
  for (int i = 0; i < requests; ++i) {
    const auto hashes = Hashes(random() % 200, 4, 8 + static_cast<int>(random() % 60));
    const absl::StatusOr<Route> route = fleet.Ask(hashes);
    EXPECT_TRUE(route.ok()) << route.status();
    if (!route.ok()) break;
    decisions.push_back({route->plan.decode, route->plan.prefiller(), route->plan.first_token_us});
    open.push_back(*route);
    fleet.Store(route->plan.prefiller(), hashes);
    if (random() % 2 == 0) fleet.core().Remember(route->plan.decode, hashes);
    fleet.clock().AdvanceUs(static_cast<int64_t>(random() % 2000));
    while (open.size() > 100) {
      std::swap(open[random() % open.size()], open.back());
      fleet.core().Learn({.decode = open.back().plan.decode,
                          .prefill = open.back().plan.prefill,
                          .computed_tokens = 1000,
                          .prefill_us = 30'000 + static_cast<int64_t>(random() % 2000),
                          .completion_tokens = 100,
                          .inter_token_us = 6000,
                          .decode_batch = open.back().decode_batch});
      fleet.End(open.back());
      open.pop_back();
    }
  }
  return decisions;
}

TEST(RouterCoreRoutes, AFleetOfNoMoreWorkersThanCandidatesGetsTheDecisionsOfAFullScan) {
  for (const bool split : {false, true}) {
    RoutedFleet some(RoutingOptions().candidates, 64, split);
    RoutedFleet all(0, 64, split);
    EXPECT_EQ(Play(some, 3, 2000), Play(all, 3, 2000));
  }
}

TEST(RouterCoreRoutes, TheSameCallsGiveTheSameDecisions) {
  RoutedFleet a(64, 300, false);
  RoutedFleet b(64, 300, false);
  EXPECT_EQ(Play(a, 4, 1000), Play(b, 4, 1000));
}

TEST(RouterCoreRoutes, CandidatesAreNearlyAsGoodAsAFullScan) {
  for (const bool split : {false, true}) {
    RoutedFleet some(64, 400, split);
    RoutedFleet all(0, 400, split);
    double some_us = 0;
    double all_us = 0;
    for (const Decision& decision : Play(some, 5, 4000)) {
      some_us += static_cast<double>(decision.first_token_us);
    }
    for (const Decision& decision : Play(all, 5, 4000)) {
      all_us += static_cast<double>(decision.first_token_us);
    }
    EXPECT_LT(some_us, 1.05 * all_us) << (split ? "split" : "both");
  }
}

TEST(RouterCoreRoutes, TheHolderOfAPromptIsACandidateAmongManyHoldersOfItsBeginning) {
  RoutedFleet fleet(64, 300, false);
  const auto hashes = Hashes(1, 4, 60);
  for (uint32_t worker = 1; worker <= 300; ++worker) {
    fleet.Store(WorkerNumber(worker), {hashes.begin(), hashes.begin() + 4});
  }
  fleet.Store(WorkerNumber(177), hashes);
  for (int i = 0; i < 10; ++i) {
    const absl::StatusOr<Route> route = fleet.Ask(hashes);
    ASSERT_TRUE(route.ok());
    EXPECT_EQ(route->plan.decode, WorkerNumber(177));
    EXPECT_EQ(route->plan.held_tokens, 60 * kUnitsPerHash);
    fleet.End(*route);
  }
}

TEST(RouterCoreRoutes, AnAnswerThatJustEndedMakesItsWorkerACandidate) {
  RoutedFleet fleet(64, 300, false);
  const auto hashes = Hashes(1, 4, 60);
  for (uint32_t worker = 1; worker <= 300; ++worker) {
    fleet.Store(WorkerNumber(worker), {hashes.begin(), hashes.begin() + 4});
  }
  fleet.core().Remember(WorkerNumber(177), hashes);
  const absl::StatusOr<Route> route = fleet.Ask(hashes);
  ASSERT_TRUE(route.ok());
  EXPECT_EQ(route->plan.decode, WorkerNumber(177));
}

TEST(RouterCoreRoutes, FullWorkersAreNoCandidatesWhileOthersHaveRoom) {
  ManualClock clock;
  RouterCore core(Options(64), &clock);
  for (int i = 0; i < 300; ++i) {
    WorkerReport report = Report(absl::StrCat("w", i), WorkerRole::kBoth);
    const bool has_room = i >= 295;
    report.available_blocks = has_room ? 1 << 20 : 1;
    report.queued = has_room ? 20 : 0;  // so the full ones are the first of the order
    ASSERT_TRUE(core.Heartbeat(report).ok());
  }
  core.Tick();
  for (int i = 0; i < 20; ++i) {
    const absl::StatusOr<Route> route =
        core.ChooseRoute({.prompt_hashes = {}, .prompt_tokens = 1000, .excluded = {}});
    ASSERT_TRUE(route.ok()) << route.status();
    EXPECT_GT(route->plan.decode, WorkerNumber(295));
  }
}

TEST(RouterCoreRoutes, TheOnlyWorkerThatMayTakeARequestIsFound) {
  RoutedFleet fleet(64, 300, false);
  absl::flat_hash_set<WorkerNumber> excluded;
  for (uint32_t worker = 1; worker <= 300; ++worker) {
    if (worker != 211) excluded.insert(WorkerNumber(worker));
  }
  for (int i = 0; i < 5; ++i) {
    const absl::StatusOr<Route> route = fleet.Ask(Hashes(1, 4, 20), excluded);
    ASSERT_TRUE(route.ok()) << route.status();
    EXPECT_EQ(route->plan.decode, WorkerNumber(211));
  }
  excluded.insert(WorkerNumber(211));
  EXPECT_TRUE(absl::IsUnavailable(fleet.Ask(Hashes(1, 4, 20), excluded).status()));
}

TEST(RouterCoreRoutes, AFleetThatGrowsAndShrinksChangesBetweenCandidatesAndAllWorkers) {
  ManualClock clock;
  RouterCore core(Options(8), &clock);
  const auto ask = [&core] {
    const absl::StatusOr<Route> route =
        core.ChooseRoute({.prompt_hashes = {}, .prompt_tokens = 100, .excluded = {}});
    EXPECT_TRUE(route.ok()) << route.status();
    return route.ok() ? route->decode_id : std::string();
  };
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 30; ++i) {
      WorkerReport report = Report(absl::StrCat(round, "-", i), WorkerRole::kBoth);
      report.available_blocks = 1 << 20;
      ASSERT_TRUE(core.Heartbeat(report).ok());
      core.Tick();
      ask();
    }
    for (int i = 0; i < 29; ++i) {
      core.Leave(absl::StrCat(round, "-", i), Epoch(1));
      if (i % 3 == 0) core.Tick();
      EXPECT_NE(ask(), absl::StrCat(round, "-", i));
    }
    core.Leave(absl::StrCat(round, "-", 29), Epoch(1));
  }
}

}  // namespace
}  // namespace baton
