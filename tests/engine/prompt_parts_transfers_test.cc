// Parts of PromptParts that come from a peer, or go to one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/prompt_parts.h"
#include "tests/engine/parts_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Use = PromptParts::Use;

constexpr SequenceId kReceiver{3};
constexpr SequenceId kSender{4};

class PromptPartsTransfers : public testing::Test {
 protected:
  void TearDown() override {
    for (const SequenceId main : {kReceiver, kSender}) bench_.End(main);
    EXPECT_TRUE(bench_.prompt_parts.idle());
    EXPECT_TRUE(bench_.cache.CheckConservation().ok()) << bench_.cache.CheckConservation();
  }
  void Admit() {
    SequenceSpec spec = bench_.Add(kReceiver, PartsBench::TwoChunks(), Use::kReceived);
    ASSERT_TRUE(bench_.scheduler.AddWaitingForKv(std::move(spec)).ok());
  }

  PartsBench bench_;
  PromptParts& parts_ = bench_.prompt_parts;
};

TEST_F(PromptPartsTransfers, AReceivedPromptIsReportedOnceWhenAllItsPartsAreThere) {
  Admit();
  const std::vector<PromptParts::CreatedPart> created = parts_.CreatedFor(kReceiver);
  ASSERT_EQ(created.size(), 3u);
  EXPECT_EQ(created[1].part, 1);
  EXPECT_EQ(created[1].tokens, 9);
  EXPECT_TRUE(parts_.HasOrAwaits(bench_.layout->parts[1]));
  const TransferEvent transfer{.kind = TransferEvent::Kind::kReceived,
                               .manifest = {},
                               .status = {},
                               .bytes = 100,
                               .busy_us = 10};
  parts_.OnArrived(created[1].sequence, 9, &transfer);
  EXPECT_THAT(parts_.TakeProgress(), IsEmpty());
  EXPECT_EQ(parts_.BlocksIfDone(kReceiver, 1).size(), 3u);
  EXPECT_THAT(parts_.BlocksIfDone(kReceiver, 2), IsEmpty());
  parts_.OnArrived(created[0].sequence, 6, &transfer);
  parts_.OnArrived(created[2].sequence, 4, nullptr);
  EXPECT_TRUE(parts_.Ready(kReceiver));
  EXPECT_THAT(parts_.TakeProgress(), ElementsAre(kReceiver));
  EXPECT_THAT(parts_.TakeProgress(), IsEmpty());
  EXPECT_EQ(bench_.scheduler.phase(kReceiver), SequencePhase::kWaitingForKv)
      << "the caller joins the parts with the question";
  EXPECT_EQ(parts_.TakeCosts(kReceiver).received.bytes(), 200);
  bench_.scheduler.KvArrived(kReceiver, 0);
  EXPECT_NE(bench_.scheduler.frame(kReceiver), nullptr);
}

TEST_F(PromptPartsTransfers, PartsOfASentPromptAreReportedAsTheyAreDone) {
  ASSERT_TRUE(bench_.scheduler.Add(bench_.Add(kSender, PartsBench::TwoChunks(), Use::kSent)).ok());
  bench_.scheduler.Schedule();
  EXPECT_THAT(parts_.BlocksIfDone(kSender, 0), IsEmpty());
  bench_.StepWithParts();
  EXPECT_THAT(parts_.TakeProgress(), ElementsAre(kSender));
  EXPECT_EQ(bench_.scheduler.phase(kSender), SequencePhase::kRunning);
  EXPECT_EQ(parts_.BlocksIfDone(kSender, 0).size(), 2u) << "its frame has the parts now";
  EXPECT_EQ(parts_.BlocksIfDone(kSender, 1).size(), 3u);
}

TEST_F(PromptPartsTransfers, APartThatHasEndedIgnoresItsTransfer) {
  Admit();
  const SequenceId part = parts_.CreatedFor(kReceiver)[0].sequence;
  bench_.End(kReceiver);
  parts_.OnArrived(part, 6, nullptr);
  EXPECT_FALSE(parts_.HasOrAwaits(bench_.layout->parts[1]));
}

TEST_F(PromptPartsTransfers, PiecesMustBeWholeSegments) {
  for (const int32_t pieces : {0, -256, 100}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        parts_.Plan(PartsBench::TwoChunks(), CacheNamespace(0), 16, pieces).status()));
  }
  EXPECT_TRUE(parts_.Plan(PartsBench::TwoChunks(), CacheNamespace(0), 16, 512).ok());
}

}  // namespace
}  // namespace baton
