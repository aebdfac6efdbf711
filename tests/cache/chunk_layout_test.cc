#include "cache/chunk_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheNamespace kSpace(7);

std::vector<TokenId> Tokens(int32_t count, TokenId first) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

ChunkedPrompt Prompt(ChunkPositions positions, ChunkScope scope) {
  return {.options = {.positions = positions, .scope = scope},
          .system = Tokens(10, 0),
          .chunks = {Tokens(5, 100), Tokens(700, 200), Tokens(5, 100)},
          .question = Tokens(3, 50)};
}

ChunkLayout Layout(const ChunkedPrompt& prompt, int32_t piece_tokens = 256) {
  return MakeChunkLayout(prompt, kSpace, piece_tokens);
}

std::vector<std::pair<int32_t, int32_t>> PlacesOf(const ChunkLayout& layout) {
  std::vector<std::pair<int32_t, int32_t>> places;
  for (const ChunkLayout::Place& place : layout.places) {
    places.emplace_back(place.part, place.shift);
  }
  return places;
}

TEST(ChunkLayout, EveryPartIsComputedAtOnePositionAndSeesWhatItsScopeSays) {
  const ChunkLayout layout = Layout(Prompt(ChunkPositions::kOverlap, ChunkScope::kSystem));
  ASSERT_EQ(layout.parts.size(), 5u) << "the third chunk equals the first";
  std::vector<int32_t> positions;
  std::vector<size_t> lengths;
  for (const ChunkLayout::Part& part : layout.parts) {
    positions.push_back(part.position);
    lengths.push_back(part.tokens.size());
  }
  EXPECT_THAT(positions, ElementsAre(0, 10, 10, 266, 522));
  EXPECT_THAT(lengths, ElementsAre(10, 5, 256, 256, 188));
  EXPECT_THAT(layout.parts[0].sees, IsEmpty());
  EXPECT_THAT(layout.parts[1].sees, ElementsAre(0));
  EXPECT_THAT(layout.parts[4].sees, ElementsAre(0, 2, 3));
  EXPECT_EQ(layout.parts[3].kind, ChunkKind::kPiece);
  EXPECT_THAT(layout.chunks, ElementsAre(ElementsAre(1), ElementsAre(2, 3, 4), ElementsAre(1)));
  EXPECT_EQ(layout.question_position, 710);
  EXPECT_EQ(layout.shifts(), 0);
  EXPECT_EQ(layout.BlocksOfParts(16), 1 + 1 + 16 + 16 + 12);
  EXPECT_EQ(layout.SlotsOfFrame(16), 16 * (1 + 1 + 16 + 16 + 12 + 1));
}

TEST(ChunkLayout, ShiftsAreTheDistanceFromWhereThePartIsComputed) {
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(PlacesOf(Layout(Prompt(ChunkPositions::kOverlap, ChunkScope::kSystem))),
            (Pairs{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {1, 0}}));
  EXPECT_EQ(PlacesOf(Layout(Prompt(ChunkPositions::kSequential, ChunkScope::kSystem))),
            (Pairs{{0, 0}, {1, 0}, {2, 5}, {3, 5}, {4, 5}, {1, 705}}));
  const ChunkLayout alone = Layout(Prompt(ChunkPositions::kOverlap, ChunkScope::kAlone));
  EXPECT_EQ(PlacesOf(alone), (Pairs{{0, 0}, {1, 10}, {2, 10}, {3, 10}, {4, 10}, {1, 10}}));
  EXPECT_EQ(alone.shifts(), 1);
  EXPECT_EQ(alone.parts[1].position, 0);
  EXPECT_THAT(alone.parts[1].sees, IsEmpty());
  EXPECT_THAT(alone.parts[4].sees, ElementsAre(2, 3));
  const ChunkLayout sequential = Layout(Prompt(ChunkPositions::kSequential, ChunkScope::kAlone));
  EXPECT_EQ(PlacesOf(sequential), (Pairs{{0, 0}, {1, 10}, {2, 15}, {3, 15}, {4, 15}, {1, 715}}));
  EXPECT_EQ(sequential.shifts(), 3);
  EXPECT_EQ(sequential.question_position, 720);
}

TEST(ChunkLayout, KeysDependOnWhatAPartSeesAndNotOnItsPlace) {
  const ChunkedPrompt prompt = Prompt(ChunkPositions::kOverlap, ChunkScope::kSystem);
  const ChunkLayout layout = Layout(prompt);
  ChunkedPrompt other = Prompt(ChunkPositions::kSequential, ChunkScope::kSystem);
  std::swap(other.chunks[0], other.chunks[1]);
  const ChunkLayout moved = Layout(other);
  EXPECT_EQ(moved.parts[moved.chunks[1][0]].key, layout.parts[1].key);
  EXPECT_EQ(moved.parts[moved.chunks[0][2]].key, layout.parts[4].key);
  const ChunkLayout alone = Layout(Prompt(ChunkPositions::kOverlap, ChunkScope::kAlone));
  EXPECT_NE(alone.parts[1].key, layout.parts[1].key);
  EXPECT_EQ(alone.parts[0].key, layout.parts[0].key);
  EXPECT_NE(MakeChunkLayout(prompt, CacheNamespace(8), 256).parts[1].key, layout.parts[1].key);
  other = prompt;
  other.system.back() += 1;
  EXPECT_NE(Layout(other).parts[1].key, layout.parts[1].key);
}

// A question's KV depends on everything before it.
TEST(ChunkLayout, TheDerivedNamespaceDependsOnEverythingThatTheQuestionSees) {
  const ChunkedPrompt prompt = Prompt(ChunkPositions::kOverlap, ChunkScope::kSystem);
  const CacheNamespace derived = Layout(prompt).derived_namespace;
  EXPECT_NE(derived, kSpace);
  EXPECT_EQ(Layout(prompt).derived_namespace, derived);
  std::vector<ChunkedPrompt> others(6, prompt);
  others[0].options.positions = ChunkPositions::kSequential;
  others[1].options.scope = ChunkScope::kAlone;
  others[2].system.pop_back();
  std::swap(others[3].chunks[0], others[3].chunks[1]);
  others[4].chunks.pop_back();
  others[5].chunks[0][0] = 1;
  for (const ChunkedPrompt& other : others) EXPECT_NE(Layout(other).derived_namespace, derived);
  EXPECT_NE(MakeChunkLayout(prompt, CacheNamespace(8), 256).derived_namespace, derived);
  ChunkedPrompt next_turn = prompt;
  next_turn.question = Tokens(30, 50);
  EXPECT_EQ(Layout(next_turn).derived_namespace, derived);
}

TEST(ChunkLayout, AFrameHasARunForEachPartAndOneForAllPiecesOfAChunk) {
  const std::vector<BlockId> system = {BlockId(3)};
  const std::vector<BlockId> first = {BlockId(9), BlockId(5)};
  const std::vector<BlockId> piece = {BlockId(1)};
  const std::vector<BlockId> last = {BlockId(7), BlockId(8)};
  const std::vector<FramePart> parts = {
      {.blocks = system, .tokens = 3},
      {.blocks = first, .tokens = 8, .shift = 5},
      {.blocks = piece, .tokens = 2, .shift = 5, .continues = true},
      {.blocks = last, .tokens = 5, .shift = 9}};
  const SequenceFrame frame = MakeFrame(parts, 40, 4);
  EXPECT_THAT(frame.blocks,
              ElementsAre(BlockId(3), BlockId(9), BlockId(5), BlockId(1), BlockId(7), BlockId(8)));
  EXPECT_THAT(frame.runs, ElementsAre(FrameRun{.begin = 0, .end = 3},
                                      FrameRun{.begin = 4, .end = 14, .position_shift = 5},
                                      FrameRun{.begin = 16, .end = 21, .position_shift = 9}));
  EXPECT_EQ(frame.begin_position, 40);
}

}  // namespace
}  // namespace baton
