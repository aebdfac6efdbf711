// Chunked prompts whose KV comes from a peer, in the scheduler: admission with all parts, and parts
// that arrive, or fail to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/scheduler/chunked_prompts_bench.h"
#include "tests/scheduler/scheduler_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenId> Words(int32_t length, TokenId first) {
  std::vector<TokenId> tokens(length);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Two chunks of 8 tokens behind 6 system tokens, in blocks of 4: 2 + 2 + 2 blocks, and the
// question's.
ChunkedRequest ThreeParts() {
  return {
      .system = Words(6, 1), .chunks = {Words(8, 100), Words(8, 200)}, .question = Words(3, 300)};
}

std::vector<int32_t> ChunkCounts(const SchedulerOutput& plan) {
  std::vector<int32_t> counts;
  for (const ScheduledChunk& chunk : plan.chunks) counts.push_back(chunk.count);
  return counts;
}

TEST(SchedulerPartsHandOff, AHandOffTakesTheBlocksOfAllPartsOrNone) {
  ChunkedBench bench(Pool(16), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, ThreeParts(), 2, 0, 0, /*hand_off=*/true).ok());
  EXPECT_EQ(bench.cache().available_blocks(), 16 - 7);
  EXPECT_EQ(bench.WaitingParts().size(), 3u);
  ChunkedRequest other = ThreeParts();
  other.chunks[0] = Words(24, 400);
  other.chunks[1] = Words(24, 500);
  const absl::Status refused = bench.AddChunked(2, other, 2, 0, 0, /*hand_off=*/true);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(bench.cache().available_blocks(), 16 - 7);
  bench.Check();
  bench.HandOffsFail();
  bench.Drain();
}

TEST(SchedulerPartsHandOff, NothingOfAHandOffIsComputedUntilItsTransfersEnd) {
  ChunkedBench bench(Pool(64), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, ThreeParts(), 2, 0, 0, /*hand_off=*/true).ok());
  EXPECT_THAT(ChunkCounts(bench.Step()), IsEmpty());
  bench.QuestionArrives(SequenceId(1), 3);
  EXPECT_THAT(ChunkCounts(bench.Step()), IsEmpty());
  const std::vector<SequenceId> parts = bench.WaitingParts();
  bench.PartArrives(parts[1], 8);
  bench.PartArrives(parts[2], 4);  // half of it: but its system part is missing
  EXPECT_THAT(ChunkCounts(bench.Step()), IsEmpty());
  bench.PartArrives(parts[0], 6);
  EXPECT_THAT(ChunkCounts(bench.Step()), ElementsAre(4));
  bench.Drain();
  EXPECT_EQ(bench.outputs().at(SequenceId(1)).size(), 2u);
  EXPECT_EQ(bench.part_tokens(), 4);
}

TEST(SchedulerPartsHandOff, AQuestionThatFailsToArriveIsComputedBehindItsParts) {
  ChunkedBench bench(Pool(64), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, ThreeParts(), 2, 0, /*forks=*/1, /*hand_off=*/true).ok());
  bench.QuestionArrives(SequenceId(1), 0);
  for (const SequenceId part : bench.WaitingParts()) bench.PartArrives(part, 100);
  EXPECT_THAT(ChunkCounts(bench.Step()), ElementsAre(3));
  bench.Drain();
  EXPECT_EQ(bench.part_tokens(), 0);
}

TEST(SchedulerPartsHandOff, ALocalRequestWaitsForPartsThatAreOnTheirWay) {
  ChunkedBench bench(Pool(64), Budget(100), {.share = 0.5});
  ASSERT_TRUE(bench.AddChunked(1, ThreeParts(), 2, 0, 0, /*hand_off=*/true).ok());
  ASSERT_TRUE(bench.AddChunked(2, ThreeParts(), 2).ok());
  EXPECT_THAT(ChunkCounts(bench.Step()), IsEmpty());
  bench.Cancel(SequenceId(1));
  bench.Check();
  EXPECT_EQ(bench.WaitingParts().size(), 3u) << "another request wants them";
  for (const SequenceId part : bench.WaitingParts()) bench.PartArrives(part, 5);
  EXPECT_THAT(ChunkCounts(bench.Step()), ElementsAre(1, 3, 3));
  bench.Drain();
}

}  // namespace
}  // namespace baton
