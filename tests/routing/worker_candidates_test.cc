#include "routing/worker_candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/clock.h"
#include "routing/kv_aware_policy.h"

namespace baton {
namespace {

constexpr int32_t kCount = 16;

bool All(WorkerNumber) { return true; }

class WorkerCandidatesTest : public ::testing::Test {
 protected:
  WorkerNumber Add(WorkerRole role, const std::string& fingerprint = "f") {
    WorkerReport report;
    report.id = "w" + std::to_string(registry_.workers().size());
    report.address = report.id + ":1";
    report.epoch = Epoch(1);
    report.model = "m";
    report.fingerprint = fingerprint;
    report.role = role;
    report.block_size = 16;
    report.available_blocks = 100'000;
    EXPECT_TRUE(registry_.Heartbeat(report).ok());
    return registry_.workers().back().number;
  }
  std::vector<WorkerNumber> Draw() {
    candidates_.Update(registry_.TakeTouched(), registry_, speeds_);
    return candidates_.Draw(All, All);
  }
  // Gives a worker requests and prompts to compute.
  void Load(WorkerNumber number, int requests, int prompts, std::mt19937& random) {
    for (int i = 0; i < requests; ++i) registry_.AddActive(number);
    for (int i = 0; i < prompts; ++i) {
      const auto tokens = static_cast<int64_t>(1 + random() % 4000);
      registry_.AddPrefill(number, {.tokens = tokens, .us = 100 * tokens});
    }
  }
  static bool Has(const std::vector<WorkerNumber>& drawn, WorkerNumber number) {
    return std::find(drawn.begin(), drawn.end(), number) != drawn.end();
  }

  ManualClock clock_;
  WorkerRegistry registry_{{.model = "",
                            .mixed_fingerprints = true,
                            .expiry_us = 1'000'000'000,
                            .max_workers = 10'000,
                            .notes_touched = true},
                           &clock_};
  ThroughputModel speeds_;
  RoutingOptions options_;
  WorkerCandidates candidates_{options_, kCount};
};

// For a prompt that no worker has cached.
TEST_F(WorkerCandidatesTest, ContainTheWorkersThatAFullScanChooses) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    WorkerRegistry& registry = registry_;
    for (const WorkerRecord& worker : std::vector(registry.workers())) {
      registry.Leave(worker.report.id, Epoch(1));
    }
    const bool split = random() % 2 == 0;
    const int all_busy = random() % 2;
    for (int i = 0; i < 300; ++i) {
      WorkerReport report;
      report.id = std::to_string(seed) + "-" + std::to_string(i);
      report.address = report.id;
      report.epoch = Epoch(1);
      report.model = "m";
      report.fingerprint = "f";
      report.block_size = 16;
      report.available_blocks = 100'000;
      report.role = !split      ? WorkerRole::kBoth
                    : i % 3 > 0 ? WorkerRole::kDecode
                                : WorkerRole::kPrefill;
      ASSERT_TRUE(registry.Heartbeat(report).ok());
      Load(registry.workers().back().number, static_cast<int>(random() % 20),
           all_busy + static_cast<int>(random() % 3), random);
    }
    clock_.AdvanceUs(50);
    const std::vector<WorkerNumber> drawn = Draw();
    EXPECT_LE(drawn.size(), size_t{kCount});
    const RoutingInput input{.prompt_tokens = 2000, .cached_tokens = {}, .excluded = {}};
    const auto plan =
        KvAwarePolicy(options_).Choose(input, {registry.workers(), &speeds_, clock_.NowUs()});
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(Has(drawn, plan->decode));
    EXPECT_TRUE(Has(drawn, plan->prefiller()));
  }
}

TEST_F(WorkerCandidatesTest, FollowEveryChangeOfTheRegistry) {
  std::mt19937 random(1);
  std::vector<WorkerNumber> workers;
  for (int i = 0; i < 100; ++i) workers.push_back(Add(WorkerRole::kBoth));
  for (const WorkerNumber number : workers) Load(number, 10, 0, random);
  for (int i = 0; i < 10; ++i) registry_.RemoveActive(workers[70]);
  EXPECT_TRUE(Has(Draw(), workers[70])) << "it has the fewest requests";
  registry_.MarkUnreachable(workers[70]);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Has(Draw(), workers[70]));
  EXPECT_EQ(candidates_.size(), 99u);
  registry_.MarkReachable(workers[70]);
  EXPECT_TRUE(Has(Draw(), workers[70]));
  const std::string id = registry_.Find(workers[70])->report.id;
  registry_.Leave(id, Epoch(1));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Has(Draw(), workers[70]));
  EXPECT_EQ(candidates_.size(), 99u);
  candidates_.Clear();
  EXPECT_TRUE(candidates_.Draw(All, All).empty());
  EXPECT_FALSE(Draw().empty());
  EXPECT_EQ(candidates_.size(), 99u);
}

TEST_F(WorkerCandidatesTest, HoldOnlyAcceptedWorkersAndPassOverOthers) {
  std::vector<WorkerNumber> workers;
  for (int i = 0; i < 100; ++i) workers.push_back(Add(WorkerRole::kBoth));
  Draw();
  const auto odd = [](WorkerNumber number) { return number.value() % 2 == 1; };
  const std::vector<WorkerNumber> drawn = candidates_.Draw(odd, All);
  EXPECT_GE(drawn.size(), size_t{kCount} / 4);
  for (const WorkerNumber number : drawn) EXPECT_TRUE(odd(number));
}

TEST_F(WorkerCandidatesTest, HoldPreferredWorkersIfThereAreAny) {
  for (int i = 0; i < 100; ++i) Add(i < 50 ? WorkerRole::kDecode : WorkerRole::kPrefill);
  Draw();
  const auto late = [](WorkerNumber number) { return number.value() > 70; };
  int prefill = 0, decode = 0;
  for (const WorkerNumber number : candidates_.Draw(All, late)) {
    const bool prefills = registry_.Find(number)->report.role == WorkerRole::kPrefill;
    (prefills ? prefill : decode) += 1;
    EXPECT_TRUE(!prefills || late(number)) << number.value();
  }
  EXPECT_GT(prefill, 0);
  EXPECT_GT(decode, 0) << "none of them is preferred";
}

// Without drift of the fleet's figures, changes of single workers lead to the same order.
TEST_F(WorkerCandidatesTest, AreTheSameWhetherAllPlacesOrTheChangedOnesAreRenewed) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    for (int i = 0; i < 10; ++i) Add(static_cast<WorkerRole>(random() % 3));
    WorkerCandidates changed(options_, kCount);
    WorkerCandidates renewed(options_, kCount);
    for (int step = 0; step < 50; ++step) {
      const std::vector<WorkerNumber> touched = registry_.TakeTouched();
      changed.Update(touched, registry_, speeds_);
      renewed.Clear();
      renewed.Update(touched, registry_, speeds_);
      ASSERT_EQ(changed.Draw(All, All), renewed.Draw(All, All));
      const auto& workers = registry_.workers();
      Load(workers[random() % workers.size()].number, 1, static_cast<int>(random() % 2), random);
    }
  }
}

TEST_F(WorkerCandidatesTest, HoldWorkersOfEveryKindAndRole) {
  for (int i = 0; i < 100; ++i) Add(i % 2 == 0 ? WorkerRole::kDecode : WorkerRole::kPrefill, "f");
  for (int i = 0; i < 3; ++i) Add(WorkerRole::kDecode, "rare");
  for (int i = 0; i < 3; ++i) Add(WorkerRole::kPrefill, "rare");
  std::array<int, 4> count = {};
  for (const WorkerNumber number : Draw()) {
    const WorkerReport& report = registry_.Find(number)->report;
    ++count[(report.fingerprint == "rare" ? 2 : 0) + (report.role == WorkerRole::kPrefill ? 1 : 0)];
  }
  for (const int workers : count) EXPECT_GE(workers, 2);
}

TEST_F(WorkerCandidatesTest, FollowAWorkerThatChangesItsRole) {
  for (int i = 0; i < 100; ++i) Add(WorkerRole::kDecode);
  Draw();
  WorkerReport report = registry_.workers()[50].report;
  report.role = WorkerRole::kPrefill;
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  EXPECT_TRUE(Has(Draw(), registry_.workers()[50].number)) << "it is the only prefill worker";
  EXPECT_EQ(candidates_.size(), 100u);
}

TEST_F(WorkerCandidatesTest, AreTheSameForTheSameSeedAndRandomOnesDiffer) {
  for (int i = 0; i < 200; ++i) Add(WorkerRole::kBoth);
  WorkerCandidates other(options_, kCount);
  const std::vector<WorkerNumber> none;
  candidates_.Update(none, registry_, speeds_);
  other.Update(none, registry_, speeds_);
  const std::vector<WorkerNumber> first = candidates_.Draw(All, All);
  EXPECT_EQ(other.Draw(All, All), first);
  EXPECT_NE(other.Draw(All, All), first);
}

// A worker without measurements takes the fleet's figures, which change as others are measured.
TEST_F(WorkerCandidatesTest, RenewAllPlacesWhenTheFleetsFiguresDrift) {
  std::vector<WorkerNumber> workers;
  for (int i = 0; i < 100; ++i) workers.push_back(Add(WorkerRole::kBoth));
  Draw();
  // The first 50 are measured: as fast as each other, and ten times as fast as the prior.
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 50; ++i) {
      speeds_.Learn({.decode = workers[i],
                     .prefill = std::nullopt,
                     .cached_tokens = 0,
                     .computed_tokens = 1000,
                     .prefill_us = 25'000,
                     .completion_tokens = 128,
                     .inter_token_us = 5000,
                     .decode_batch = 1});
      registry_.Touch(workers[i]);
    }
    Draw();
  }
  // Requests on the measured ones make the others the least busy.
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) Load(workers[i], 5, 0, random);
  int unmeasured = 0;
  const std::vector<WorkerNumber> drawn = Draw();
  for (const WorkerNumber number : drawn) unmeasured += number > workers[49] ? 1 : 0;
  EXPECT_GE(unmeasured, kCount / 4) << "of " << drawn.size();
}

}  // namespace
}  // namespace baton
