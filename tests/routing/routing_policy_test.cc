#include "routing/routing_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

class RoutingPolicyTest : public ::testing::Test {
 protected:
  WorkerRecord& Add(WorkerRole role, const std::string& fingerprint = "f") {
    WorkerRecord record;
    record.number = WorkerNumber(static_cast<uint32_t>(workers_.size() + 1));
    record.report.role = role;
    record.report.fingerprint = fingerprint;
    record.report.block_size = 16;
    record.report.available_blocks = 1000;
    workers_.push_back(record);
    return workers_.back();
  }
  absl::StatusOr<RoutePlan> Choose() { return ChooseRoute(options_, input_, workers_); }

  RoutingOptions options_{
      .local_prefill_tokens = 64, .local_continuation_tokens = 512, .tokens_per_load = 64};
  RoutingInput input_{.prompt_tokens = 1000,
                      .placement = Placement::kAutomatic,
                      .cached_tokens = {},
                      .excluded = {}};
  std::vector<WorkerRecord> workers_;
};

TEST_F(RoutingPolicyTest, WithoutADecodeWorkerNothingIsAvailable) {
  Add(WorkerRole::kPrefill);
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RoutingPolicyTest, ALongPromptGoesToAPrefillWorker) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  const auto plan = Choose();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->decode, WorkerNumber(2));
  EXPECT_EQ(plan->prefill, WorkerNumber(1));
}

TEST_F(RoutingPolicyTest, WithoutAPrefillWorkerTheDecodeWorkerPrefills) {
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->prefill, std::nullopt);
}

TEST_F(RoutingPolicyTest, TheNextTurnOfAChatIsComputedWhereTheLastOneWasDecoded) {
  Add(WorkerRole::kPrefill);  // 1 holds the last prompt, 2 holds its answer as well
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(1)] = 400;
  input_.cached_tokens[WorkerNumber(2)] = 488;  // 512 are left
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.cached_tokens[WorkerNumber(2)] = 487;  // too much is left
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
  input_.cached_tokens[WorkerNumber(1)] = 500;  // as much as here, and half is here
  input_.cached_tokens[WorkerNumber(2)] = 500;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  options_.local_continuation_tokens = 600;
  input_.cached_tokens[WorkerNumber(1)] = 499;  // as much, but less than half
  input_.cached_tokens[WorkerNumber(2)] = 499;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(RoutingPolicyTest, OnlyEqualFingerprintsArePaired) {
  Add(WorkerRole::kPrefill, "g");
  Add(WorkerRole::kDecode, "f");
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.placement = Placement::kRemote;
  EXPECT_EQ(Choose().status().code(), absl::StatusCode::kUnavailable);
  Add(WorkerRole::kDecode, "g");
  EXPECT_EQ(Choose()->decode, WorkerNumber(3));
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(RoutingPolicyTest, TheDecodeWorkerWithTheLongestPrefixWins) {
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(2)] = 512;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(RoutingPolicyTest, LoadOutweighsAShortPrefix) {
  Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode).others = 10;  // 640 tokens' worth
  input_.cached_tokens[WorkerNumber(2)] = 512;
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  input_.cached_tokens[WorkerNumber(2)] = 656;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(RoutingPolicyTest, TheLocalLimitCountsUncachedTokensOfTheChosenWorker) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(1)] = 1000;
  input_.cached_tokens[WorkerNumber(2)] = 1000 - 64;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.cached_tokens[WorkerNumber(2)] = 1000 - 65;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(RoutingPolicyTest, PlacementOverridesTheLimit) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.placement = Placement::kLocal;
  EXPECT_EQ(Choose()->prefill, std::nullopt);
  input_.placement = Placement::kRemote;
  input_.prompt_tokens = 3;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(1));
}

TEST_F(RoutingPolicyTest, AFullPoolIsTheLastChoice) {
  Add(WorkerRole::kDecode).report.available_blocks = 10;
  Add(WorkerRole::kDecode).report.queued = 1000;
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
  input_.excluded.insert(WorkerNumber(2));
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
}

TEST_F(RoutingPolicyTest, DrainingUnreachableAndExcludedWorkersAreLeftOut) {
  Add(WorkerRole::kDecode).report.draining = true;
  Add(WorkerRole::kDecode).unreachable = true;
  Add(WorkerRole::kDecode);
  input_.excluded.insert(WorkerNumber(3));
  EXPECT_FALSE(Choose().ok());
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->decode, WorkerNumber(4));
}

TEST_F(RoutingPolicyTest, EqualWorkersTakeTurns) {
  Add(WorkerRole::kDecode).assigned = 1;
  Add(WorkerRole::kDecode);
  EXPECT_EQ(Choose()->decode, WorkerNumber(2));
}

TEST_F(RoutingPolicyTest, ThePrefillWorkerWithThePrefixWins) {
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kPrefill);
  Add(WorkerRole::kDecode);
  input_.cached_tokens[WorkerNumber(2)] = 480;
  EXPECT_EQ(Choose()->prefill, WorkerNumber(2));
}

TEST_F(RoutingPolicyTest, AWorkerOfBothRolesDoesNotPrefillForItself) {
  Add(WorkerRole::kBoth);
  EXPECT_EQ(Choose()->decode, WorkerNumber(1));
  EXPECT_EQ(Choose()->prefill, std::nullopt);
}

}  // namespace
}  // namespace baton
