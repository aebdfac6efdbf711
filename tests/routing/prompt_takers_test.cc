#include "routing/prompt_takers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class PromptTakersTest : public testing::Test {
 protected:
  WorkerRecord& Add(WorkerRole role, const PromptChunkSupport& chunks) {
    WorkerRecord& worker = fleet_.Add(role);
    worker.report.chunks = std::make_shared<const PromptChunkSupport>(chunks);
    return worker;
  }
  absl::Status Check() const { return CheckTaken(input_, fleet_.workers); }
  void ExpectRefused(const std::string& why) const {
    EXPECT_EQ(Check().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(Check().message()), HasSubstr(why));
  }

  Fleet fleet_;
  RoutingInput input_{
      .prompt_tokens = 100, .cached_tokens = {}, .excluded = {}, .chunk_repair = ChunkRepair()};
};

TEST_F(PromptTakersTest, OrdinaryPromptsAndEmptyFleetsAreNotChecked) {
  EXPECT_TRUE(Check().ok());
  Add(WorkerRole::kPrefill, {});
  EXPECT_TRUE(Check().ok()) << "the policy says that there is no decode worker";
  fleet_.Add(WorkerRole::kDecode);
  input_.chunk_repair.reset();
  EXPECT_TRUE(Check().ok());
}

TEST_F(PromptTakersTest, WithoutAWorkerThatKnowsChunksTheErrorSaysSo) {
  fleet_.Add(WorkerRole::kDecode);
  Add(WorkerRole::kPrefill, {});
  ExpectRefused("no worker of this fleet supports prompt chunks");
}

TEST_F(PromptTakersTest, AWorkersReasonIsNamed) {
  fleet_.Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode, {.refusal = "this model has 2 groups of layers with sliding windows"});
  ExpectRefused("worker-2: this model has 2 groups of layers with sliding windows");
}

TEST_F(PromptTakersTest, AWorkerThatTakesThePromptIsEnoughAlsoIfItIsUnusableForNow) {
  fleet_.Add(WorkerRole::kDecode);
  Add(WorkerRole::kDecode, {}).unreachable = true;
  EXPECT_TRUE(Check().ok());
}

TEST_F(PromptTakersTest, ARepairThatNoWorkerCanDoIsNamed) {
  Add(WorkerRole::kDecode, {.repairs_first = true});
  using Kind = ChunkRepair::Kind;
  input_.chunk_repair = ChunkRepair{.kind = Kind::kFirst, .first_tokens = 16};
  EXPECT_TRUE(Check().ok());
  input_.chunk_repair = ChunkRepair{.kind = Kind::kShare, .share_millionths = 150'000};
  ExpectRefused("chunk_repair share:0.15 is not supported by any worker");
  input_.chunk_repair->share_millionths = 0;
  EXPECT_TRUE(Check().ok()) << "nothing is repaired";
}

TEST_F(PromptTakersTest, ADemandedPrefillWorkerMustHandChunksOver) {
  input_.placement = Placement::kRemote;
  Add(WorkerRole::kDecode, {.hands_over = true});
  Add(WorkerRole::kPrefill, {});
  ExpectRefused("no prefill worker of this fleet hands over the KV of prompt chunks");
  Add(WorkerRole::kPrefill, {.hands_over = true});
  EXPECT_TRUE(Check().ok());
}

TEST_F(PromptTakersTest, ARepairIsNotComputedOnADemandedPrefillWorker) {
  input_.placement = Placement::kRemote;
  Add(WorkerRole::kDecode, {.repairs_first = true, .hands_over = true});
  Add(WorkerRole::kPrefill, {.repairs_first = true, .hands_over = true});
  input_.chunk_repair = ChunkRepair{.kind = ChunkRepair::Kind::kFirst, .first_tokens = 16};
  ExpectRefused("chunk_repair first:16 is not possible on a worker that prefills");
  input_.placement = Placement::kAutomatic;
  EXPECT_TRUE(Check().ok());
}

TEST_F(PromptTakersTest, AnAnswerThatLostItsWorkersIsUnavailable) {
  fleet_.Add(WorkerRole::kDecode);
  input_.fingerprint = "f";
  EXPECT_EQ(Check().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
