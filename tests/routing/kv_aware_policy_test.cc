#include "routing/kv_aware_policy.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

class KvAwarePolicyTest : public ::testing::Test {
 protected:
  WorkerRecord& Add(WorkerRole role, const std::string& fingerprint = "f") {
    return fleet_.Add(role, fingerprint);
  }
  absl::StatusOr<RoutePlan> Choose() {
    return KvAwarePolicy(options_).Choose(input_, fleet_.View());
  }

  RoutingOptions options_{.local_prefill_tokens = 64};
  RoutingInput input_{.prompt_tokens = 1000, .cached_tokens = {}, .excluded = {}};
  Fleet fleet_;
};

TEST_F(KvAwarePolicyTest, WithoutADecodeWorkerNothingIsAvailable) {
  Add(WorkerRole::kPrefill);
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(KvAwarePolicyTest, ALongPromptGoesToAPrefillWorker) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  const auto plan = Choose();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->decode, WorkerNumber(2));
  EXPECT_EQ(plan->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, WithoutAPrefillWorkerTheDecodeWorkerPrefills) {
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->prefill, std::nullopt);
}

TEST_F(KvAwarePolicyTest, TheNextTurnOfAChatIsComputedWhereTheLastOneWasDecoded) {
  Add(WorkerRole::kPrefill);  // 1 holds the last prompt, 2 also holds its answer
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(1)] = 400;
  input_.cached_tokens[WorkerNumber(2)] = 488;  // 512 tokens are missing
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.cached_tokens[WorkerNumber(2)] = 487;  // one token too many is missing
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
  // Both have the same share, and half of the prompt is here.
  input_.cached_tokens[WorkerNumber(1)] = 500;
  input_.cached_tokens[WorkerNumber(2)] = 500;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  options_.local_continuation_tokens = 600;
  // Both have the same share, but less than half is here.
  input_.cached_tokens[WorkerNumber(1)] = 499;
  input_.cached_tokens[WorkerNumber(2)] = 499;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, ANextTurnStaysRegardlessOfEstimatedSpeeds) {
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode);
  input_.prompt_tokens = 300;
  input_.cached_tokens = {{WorkerNumber(1), 272}};
  // Its prompts took long by chance. The other worker would finish at once.
  for (const auto& [number, us] : {std::pair(1, 4'000'000), std::pair(2, 20'000)}) {
    FinishedRequest finished{.decode = WorkerNumber(number), .prefill = std::nullopt};
    finished.computed_tokens = 200;
    finished.prefill_us = us;
    for (int i = 0; i < 20; ++i) fleet_.speeds.Learn(finished);
  }
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  fleet_.At(WorkerNumber(1)).active = 1;  // another request waits there
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, OnlyEqualFingerprintsArePaired) {
  Add(WorkerRole::kPrefill, "g");
  Add(WorkerRole::kDecode, "f");
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
  Add(WorkerRole::kDecode, "g");
  EXPECT_EQ(Choose()->decode, WorkerNumber(3));
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, OnlyConfirmedBackendsArePaired) {
  Add(WorkerRole::kPrefill).report.backend = "cuda";
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
  Add(WorkerRole::kPrefill);
  EXPECT_EQ(Choose()->prefill, WorkerNumber(3));
}

TEST_F(KvAwarePolicyTest, OnlyWorkersWithAProtocolVersionInCommonArePaired) {
  Add(WorkerRole::kPrefill).report.protocol = {.oldest = 7, .newest = 8};
  Add(WorkerRole::kDecode).report.protocol = {.oldest = 5, .newest = 6};
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
  input_.placement = Placement::kAutomatic;
  EXPECT_EQ(Choose()->prefill, std::nullopt) << "the decode worker prefills itself";
  fleet_.At(WorkerNumber(2)).report.protocol = {.oldest = 6, .newest = 7};
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, AnAnswerContinuesOnlyOnAConfirmedBackend) {
  Add(WorkerRole::kDecode).report.backend = "cuda";
  input_.fingerprint = "f";
  input_.backend = "cpu";
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
  Add(WorkerRole::kDecode).report.protocol = {.oldest = 8, .newest = 9};
  EXPECT_EQ(Choose()->decode, WorkerNumber(2))
      << "no KV is transferred, so any protocol is allowed";
}

TEST_F(KvAwarePolicyTest, APullComesFromTheBestSourceThatSpeaksTheProtocol) {
  options_.pull_prefixes = true;
  input_.prompt_tokens = 4000;
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode).report.protocol = {.oldest = 7, .newest = 8};
  Add(WorkerRole::kDecode).report.protocol = {.oldest = 6, .newest = 7};
  input_.cached_tokens = {{WorkerNumber(2), 3000}, {WorkerNumber(3), 2000}};
  input_.excluded = {WorkerNumber(2), WorkerNumber(3)};
  const auto source = [this] {
    const auto plan = Choose();
    return plan.ok() && plan->pull ? plan->pull->from : WorkerNumber(0);
  };
  EXPECT_EQ(source(), WorkerNumber(3));
  fleet_.At(WorkerNumber(2)).report.protocol = {.oldest = 4, .newest = 5};
  EXPECT_EQ(source(), WorkerNumber(2)) << "it has more of the prefix";
  fleet_.At(WorkerNumber(2)).report.backend = "cuda";
  EXPECT_EQ(source(), WorkerNumber(3));
}

TEST_F(KvAwarePolicyTest, PoolsWithDifferentBlocksArePairedIfNoOtherPairIsBetter) {
  Add(WorkerRole::kPrefill).report.block_size = 32;
  Add(WorkerRole::kPrefill).report.pool_layout = "layer-major";
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
  Add(WorkerRole::kPrefill);
  EXPECT_EQ(Choose()->prefill, WorkerNumber(4)) << "its pool has the same shape";
  fleet_.At(WorkerNumber(4)).pending = {.tokens = 1000, .us = 100'000};
  fleet_.At(WorkerNumber(4)).prompts = {{.tokens = 1000, .us = 100'000}};
  fleet_.At(WorkerNumber(4)).prefilling_since_us = fleet_.now_us;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1)) << "it would finish first";
  Add(WorkerRole::kDecode).report.pool_layout = "layer-major";
  input_.excluded.insert(WorkerNumber(3));
  EXPECT_EQ(Choose()->decode, WorkerNumber(5));
  EXPECT_EQ(Choose()->prefill, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, WithSeveralKvGroupsSmallerBlocksAreNotPairedWithLargerOnes) {
  Add(WorkerRole::kPrefill).report.block_size = 8;
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1)) << "one group";
  for (WorkerRecord& worker : fleet_.workers) worker.report.kv_groups = 2;
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
  input_.placement = Placement::kAutomatic;
  EXPECT_EQ(Choose()->prefill, std::nullopt) << "the decode worker computes the prompt";
  Add(WorkerRole::kPrefill).report.block_size = 32;
  fleet_.workers.back().report.kv_groups = 2;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(3));
}

TEST_F(KvAwarePolicyTest, WithSeveralKvGroupsNothingIsPulledFromSmallerBlocks) {
  options_.pull_prefixes = true;
  input_.prompt_tokens = 4000;
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode).report.block_size = 8;
  Add(WorkerRole::kDecode).report.block_size = 32;
  input_.cached_tokens = {{WorkerNumber(2), 3000}, {WorkerNumber(3), 2000}};
  input_.excluded = {WorkerNumber(2), WorkerNumber(3)};
  EXPECT_EQ(Choose()->pull->from, WorkerNumber(2)) << "one group";
  for (WorkerRecord& worker : fleet_.workers) worker.report.kv_groups = 2;
  EXPECT_EQ(Choose()->pull->from, WorkerNumber(3)) << "it holds less, and its blocks fit";
  fleet_.At(WorkerNumber(3)).report.block_size = 4;
  EXPECT_EQ(Choose()->pull, std::nullopt);
}

TEST_F(KvAwarePolicyTest, TheDecodeWorkerWithTheLongestPrefixWins) {
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(2)] = 512;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, LoadOutweighsAShortPrefix) {
  options_.pull_prefixes = false;
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode).others = 40;
  input_.cached_tokens[WorkerNumber(2)] = 512;
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  input_.cached_tokens[WorkerNumber(2)] = 960;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
  options_.pull_prefixes = true;  // the other worker need not compute it
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  EXPECT_EQ(Choose()->pull->from, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, TheLocalLimitCountsUncachedTokensOfTheChosenWorker) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(1)] = 1000;
  input_.cached_tokens[WorkerNumber(2)] = 1000 - 64;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.cached_tokens[WorkerNumber(2)] = 1000 - 65;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, PlacementOverridesTheLimit) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kLocal;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.placement = Placement::kRemote;
  input_.prompt_tokens = 3;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, AFullPoolIsTheLastChoice) {
  Add(WorkerRole::kDecode).report.available_blocks = 10;
  Add(WorkerRole::kDecode).report.queued = 1000;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
  input_.excluded.insert(WorkerNumber(2));
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, DrainingUnreachableAndExcludedWorkersAreLeftOut) {
  Add(WorkerRole::kDecode).report.draining = true;
  Add(WorkerRole::kDecode).unreachable = true;
  Add(WorkerRole::kDecode);
  input_.excluded.insert(WorkerNumber(3));
  EXPECT_FALSE(Choose().ok());
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->decode, WorkerNumber(4));
}

TEST_F(KvAwarePolicyTest, EqualWorkersTakeTurns) {
  Add(WorkerRole::kDecode).assigned = 1;
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, ThePrefillWorkerWithThePrefixWins) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(2)] = 480;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(2));
}

TEST_F(KvAwarePolicyTest, AWorkerOfBothRolesDoesNotPrefillForItself) {
  Add(WorkerRole::kBoth);
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  EXPECT_EQ(Choose()->prefill, std::nullopt);
}

TEST_F(KvAwarePolicyTest, ABacklogAtThePrefillWorkersMakesTheDecodeWorkerCompute) {
  WorkerRecord& busy = Add(WorkerRole::kPrefill);
  busy.prompts = {{.tokens = 10'000, .us = 5'000'000}};
  busy.pending = busy.prompts[0];
  busy.prefilling_since_us = fleet_.now_us;
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  fleet_.now_us += 4'900'000;  // nearly done
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, TheDecodeWorkerThatLacksTheFewestBlocksGetsTheHandOff) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode);
  input_.prompt_tokens = 4000;
  input_.cached_tokens[WorkerNumber(1)] = 3900;
  input_.cached_tokens[WorkerNumber(3)] = 2000;
  EXPECT_EQ(Choose()->decode, WorkerNumber(3));
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(KvAwarePolicyTest, ThePlanStatesTheTimeOfItsPrefill) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(1)] = 400;
  const auto plan = Choose();
  EXPECT_EQ(plan->work.tokens, 600);
  EXPECT_EQ(plan->work.us,
            static_cast<int64_t>(fleet_.speeds.Of(WorkerNumber(1)).PrefillUs(400, 1000)));
}

// Cold prompts, all equal or all different. No cache has any of them.
TEST_F(KvAwarePolicyTest, AColdBurstSpreadsEvenly) {
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kPrefill);
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  for (int i = 0; i < 40; ++i) fleet_.Send(*Choose());
  for (const WorkerRecord& worker : fleet_.workers) {
    EXPECT_EQ(worker.assigned, 10) << worker.report.id;
  }
}

TEST_F(KvAwarePolicyTest, AColdBurstSpreadsOverWorkersOfBothRoles) {
  for (int i = 0; i < 8; ++i) Add(WorkerRole::kBoth);
  for (int i = 0; i < 40; ++i) fleet_.Send(*Choose());
  for (const WorkerRecord& worker : fleet_.workers) {
    EXPECT_GE(worker.prompts.size(), 4u) << worker.report.id;
    EXPECT_LE(worker.prompts.size(), 6u) << worker.report.id;
  }
}

TEST_F(KvAwarePolicyTest, ABurstBehindOneHolderSpreadsWhenTheQueueOutlastsComputing) {
  options_.pull_prefixes = false;
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  input_.cached_tokens[WorkerNumber(2)] = 900;
  std::set<WorkerNumber> first_five;
  std::set<WorkerNumber> all;
  for (int i = 0; i < 100; ++i) {
    const RoutePlan plan = *Choose();
    fleet_.Send(plan);
    if (i < 5) first_five.insert(*plan.prefill);
    all.insert(*plan.prefill);
  }
  EXPECT_EQ(first_five, std::set<WorkerNumber>{WorkerNumber(2)});
  EXPECT_EQ(all.size(), 4u);
  EXPECT_GT(fleet_.At(WorkerNumber(2)).assigned, 40);  // and the holder still does most of the work
}

TEST_F(KvAwarePolicyTest, RequestsThatWaitForAPrefixShareTheCostOfASecondCopy) {
  options_.pull_prefixes = false;
  Add(WorkerRole::kBoth);
  Add(WorkerRole::kBoth);
  const WorkerNumber holder(1), idle(2);
  input_.prompt_tokens = 12'000;
  input_.cached_tokens[holder] = 11'900;
  // Number of prompts that wait at the holder before one goes to the idle worker.
  const auto wait_there = [&](uint64_t held_prefix, uint64_t of_others) {
    Fleet fleet = fleet_;
    RoutingInput input = input_;
    for (int waiting = 0; waiting < 1000; ++waiting) {
      input.held_prefix = held_prefix;
      RoutePlan plan = *KvAwarePolicy(options_).Choose(input, fleet.View());
      if (plan.decode == idle) return waiting;
      EXPECT_EQ(plan.work.prefix, held_prefix);
      plan.work.prefix = of_others;
      fleet.Send(plan);
    }
    return 1000;
  };
  const int alone = wait_there(7, 8);  // the waiting prompts have another prefix
  EXPECT_EQ(wait_there(0, 0), alone) << "the prefixes are unknown";
  EXPECT_GT(alone, 20);
  EXPECT_LT(wait_there(7, 7), alone / 2);
  EXPECT_GT(wait_there(7, 7), 2) << "a copy has a cost";
}

TEST_F(KvAwarePolicyTest, ABurstBehindOneHolderSpreadsAtOnceWhereThePrefixCanBePulled) {
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  input_.cached_tokens[WorkerNumber(2)] = 900;
  for (int i = 0; i < 40; ++i) {
    const RoutePlan plan = *Choose();
    EXPECT_EQ(plan.pull.has_value(), plan.prefill != WorkerNumber(2));
    fleet_.Send(plan);
  }
  for (uint32_t prefill = 1; prefill <= 4; ++prefill) {
    EXPECT_GE(fleet_.At(WorkerNumber(prefill)).assigned, 8);
  }
}

// A prefix that all requests share, and caches that keep it. When its holder saturates, other
// workers get copies, until all workers serve it.
TEST_F(KvAwarePolicyTest, AHotPrefixReplicatesWhenItsHolderSaturates) {
  for (int i = 0; i < 4; ++i) Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kRemote;
  input_.prompt_tokens = 2000;
  input_.cached_tokens[WorkerNumber(1)] = 1900;
  for (int i = 0; i < 400; ++i) {
    const RoutePlan plan = *Choose();
    fleet_.Send(plan);
    if (i % 2 == 0) continue;
    // Requests arrive twice as fast as a worker with the prefix serves them.
    for (WorkerRecord& worker : fleet_.workers) {
      if (worker.prompts.empty()) continue;
      worker.pending.us -= worker.prompts[0].us;
      worker.pending.tokens -= worker.prompts[0].tokens;
      worker.prompts.erase(worker.prompts.begin());
      input_.cached_tokens[worker.number] = 1900;
    }
  }
  std::set<WorkerNumber> holders;
  for (const auto& [number, tokens] : input_.cached_tokens) holders.insert(number);
  EXPECT_GE(holders.size(), 2u);
  EXPECT_LE(fleet_.At(WorkerNumber(1)).prompts.size(), 20u);
}

TEST_F(KvAwarePolicyTest, APullIsPlannedOnlyIfAllowedAndCheaperThanComputing) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.prompt_tokens = 4000;
  input_.placement = Placement::kRemote;
  input_.cached_tokens[WorkerNumber(2)] = 3000;
  options_.pull_prefixes = false;
  EXPECT_EQ(Choose()->pull, std::nullopt);
  options_.pull_prefixes = true;
  const auto plan = Choose();
  ASSERT_TRUE(plan->pull.has_value());
  EXPECT_EQ(plan->pull->from, WorkerNumber(2));
  EXPECT_EQ(plan->pull->tokens, 3000);
  EXPECT_LT(plan->work.us, fleet_.speeds.Of(WorkerNumber(1)).PrefillUs(0, 4000) / 2);
  input_.cached_tokens[WorkerNumber(2)] = 8;  // too few for a pull
  EXPECT_EQ(Choose()->pull, std::nullopt);
  input_.cached_tokens[WorkerNumber(2)] = 3000;
  fleet_.At(WorkerNumber(2)).report.fingerprint = "g";
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->pull, std::nullopt);
}

}  // namespace
}  // namespace baton
