#include "engine/chunk_repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/engine/chunked_prompt.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ChunkRepair First(int32_t tokens) {
  return {.kind = ChunkRepair::Kind::kFirst, .first_tokens = tokens};
}
ChunkRepair Share(int32_t millionths) {
  return {.kind = ChunkRepair::Kind::kShare, .share_millionths = millionths};
}

ChunkLayout LayoutOf(const ChunkedPrompt& prompt) {
  return MakeChunkLayout(prompt, CacheNamespace(7), /*piece_tokens=*/256);
}

std::vector<int32_t> Slots(const RepairRows& rows) {
  std::vector<int32_t> slots;
  for (const FrameRow& row : rows.rows) slots.push_back(row.slot);
  return slots;
}

TEST(ChunkRepair, RowsAreTheFirstTokensOfEachChunkButTheFirstOne) {
  const ChunkedPrompt prompt =
      PromptOf("sys", {"aaaaaa", "b", "cccccc"}, "q", {.repair = First(3)});
  const RepairRows rows = CandidateRows(LayoutOf(prompt), /*block_size=*/4);
  // Slots 0-3: the system part; 4-11, 12-15 and 16-23: the chunks.
  EXPECT_THAT(Slots(rows), ElementsAre(12, 16, 17, 18));
  EXPECT_THAT(rows.tokens, ElementsAre('b', 'c', 'c', 'c'));
  EXPECT_EQ(rows.rows[0], (FrameRow{.slot = 12, .run = 2, .position = 3}));
  EXPECT_EQ(rows.rows[3], (FrameRow{.slot = 18, .run = 3, .position = 5}));
}

TEST(ChunkRepair, WithScopeAloneTheFirstChunkIsRepairedToo) {
  ChunkOptions options{.scope = ChunkScope::kAlone, .repair = First(2)};
  const RepairRows rows = CandidateRows(LayoutOf(PromptOf("sys", {"aaa", "bbb"}, "q", options)), 4);
  EXPECT_THAT(Slots(rows), ElementsAre(4, 5, 8, 9));
  EXPECT_EQ(rows.rows[1], (FrameRow{.slot = 5, .run = 1, .position = 1}));
  EXPECT_THAT(Slots(CandidateRows(LayoutOf(PromptOf("", {"aaa", "bbb"}, "q", options)), 4)),
              ElementsAre(0, 1, 4, 5));
  options.scope = ChunkScope::kSystem;
  EXPECT_THAT(Slots(CandidateRows(LayoutOf(PromptOf("", {"aaa", "bbb"}, "q", options)), 4)),
              ElementsAre(4, 5));
}

TEST(ChunkRepair, PiecesOfAChunkShareItsFirstTokensAndItsRun) {
  ChunkedPrompt prompt = PromptOf("", {"a"}, "q", {.repair = First(300)});
  prompt.chunks.push_back(std::vector<TokenId>(600, 'b'));
  const RepairRows rows = CandidateRows(LayoutOf(prompt), 16);
  ASSERT_EQ(rows.size(), 300);
  EXPECT_EQ(rows.rows[299], (FrameRow{.slot = 16 + 299, .run = 1, .position = 299}));
  prompt.options.repair = Share(1);
  EXPECT_EQ(CandidateRows(LayoutOf(prompt), 16).size(), 600);
}

TEST(ChunkRepair, NothingIsRepairedWithoutARepair) {
  for (const ChunkRepair& repair : {ChunkRepair{}, First(0), Share(0)}) {
    const ChunkLayout layout = LayoutOf(PromptOf("s", {"aaa", "bbb"}, "q", {.repair = repair}));
    EXPECT_THAT(CandidateRows(layout, 4).rows, IsEmpty());
    EXPECT_EQ(BlocksOfRepair(layout, 4), 0);
    EXPECT_EQ(RowsToRepair(repair, 10), 0);
    EXPECT_EQ(layout.derived_namespace,
              LayoutOf(PromptOf("s", {"aaa", "bbb"}, "q")).derived_namespace);
  }
}

TEST(ChunkRepair, EveryRepairHasItsOwnNamespace) {
  std::vector<CacheNamespace> seen;
  for (const ChunkRepair& repair : {ChunkRepair{}, First(1), First(2), Share(1), Share(2)}) {
    const ChunkLayout layout = LayoutOf(PromptOf("s", {"aaa", "bbb"}, "q", {.repair = repair}));
    for (const CacheNamespace& other : seen) EXPECT_NE(layout.derived_namespace, other);
    seen.push_back(layout.derived_namespace);
    EXPECT_EQ(layout.parts[1].key, LayoutOf(PromptOf("s", {"aaa", "bbb"}, "q")).parts[1].key)
        << "a chunk's own KV does not depend on the repair";
  }
}

TEST(ChunkRepair, TheShareIsRoundedUp) {
  EXPECT_EQ(RowsToRepair(Share(150'000), 100), 15);
  EXPECT_EQ(RowsToRepair(Share(150'000), 101), 16);
  EXPECT_EQ(RowsToRepair(Share(1), 3), 1);
  EXPECT_EQ(RowsToRepair(Share(1'000'000), 2'000'000), 2'000'000);
  EXPECT_EQ(RowsToRepair(First(16), 3), 3);
}

TEST(ChunkRepair, BlocksAreThoseThatTheRowsTouch) {
  const auto blocks = [](ChunkRepair repair) {
    return BlocksOfRepair(
        LayoutOf(PromptOf("sys", {"aaaaaa", "bbbbbbbbb", "cccccc"}, "q", {.repair = repair})), 4);
  };
  EXPECT_EQ(blocks(First(1)), 2);
  EXPECT_EQ(blocks(First(5)), 4);
  EXPECT_EQ(blocks(First(100)), 5);
  EXPECT_EQ(blocks(Share(1'000'000)), 5);
  EXPECT_EQ(blocks(Share(200'000)), 3) << "of 15 candidates, 3 are repaired";
}

TEST(ChunkRepair, TheLargestChangesAreChosenAndTheEarlierAmongEqualOnes) {
  const ChunkLayout layout =
      LayoutOf(PromptOf("", {"x", "abcdef"}, "q", {.repair = Share(500'000)}));
  const RepairRows candidates = CandidateRows(layout, 4);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> changes = {1, 5, 2, nan, 2, 0};
  const auto chosen = [&](int32_t count) {
    return LargestChanges(candidates, changes, count).tokens;
  };
  EXPECT_THAT(chosen(0), IsEmpty());
  EXPECT_THAT(chosen(1), ElementsAre('b'));
  EXPECT_THAT(chosen(2), ElementsAre('b', 'c'));
  EXPECT_THAT(chosen(3), ElementsAre('b', 'c', 'e'));
  EXPECT_THAT(chosen(5), ElementsAre('a', 'b', 'c', 'e', 'f'));
  EXPECT_THAT(Slots(LargestChanges(candidates, changes, 3)), ElementsAre(5, 6, 8));
  EXPECT_EQ(LargestChanges(candidates, changes, 6).size(), 6);
}

TEST(ChunkRepair, TouchedBlocksAreReplacedAndPartlyRepairedOnesCopied) {
  SequenceFrame frame;
  frame.blocks = {BlockId(10), BlockId(11), BlockId(12), BlockId(13)};
  frame.runs = {{.begin = 0, .end = 6}, {.begin = 8, .end = 15}};
  const std::vector<FrameRow> rows = {{.slot = 4, .run = 0, .position = 4},
                                      {.slot = 5, .run = 0, .position = 5},
                                      {.slot = 12, .run = 1, .position = 4}};
  const std::vector<BlockId> own = {BlockId(1), BlockId(2), BlockId(3)};
  const std::vector<BlockCopy> copies = MakePrivate(rows, own, 4, frame);
  EXPECT_THAT(frame.blocks, ElementsAre(BlockId(10), BlockId(1), BlockId(12), BlockId(2)));
  // Block 11 has two tokens, and both are rows.
  EXPECT_THAT(copies, ElementsAre(BlockCopy{.from = BlockId(13), .to = BlockId(2), .tokens = 3}));
  EXPECT_EQ(frame.rows, rows);
}

}  // namespace
}  // namespace baton
