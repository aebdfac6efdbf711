#include "router/chunked_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cache/chunk_layout.h"

namespace baton {
namespace {

using ::testing::IsEmpty;

constexpr CacheNamespace kSpace{1, 2};

std::vector<TokenId> Text(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

ChunkedPrompt Prompt() {
  ChunkedPrompt prompt;
  prompt.system = Text(1, 40);
  prompt.chunks = {Text(100, 30), Text(200, 700), Text(100, 30)};
  prompt.question = Text(300, 20);
  return prompt;
}

TEST(ChunkedRequest, HasThePartsUnderTheKeysOfTheWorkers) {
  for (const int32_t piece_tokens : {256, 512, 4096}) {
    const ChunkLayout layout = MakeChunkLayout(Prompt(), kSpace, piece_tokens);
    const ChunkedRequest request(Prompt(), kSpace, piece_tokens);
    EXPECT_EQ(request.derived_namespace(), layout.derived_namespace);
    ASSERT_EQ(request.parts().size(), layout.parts.size());
    for (size_t i = 0; i < layout.parts.size(); ++i) {
      EXPECT_EQ(request.parts()[i].key, layout.parts[i].key.hash);
      EXPECT_EQ(request.parts()[i].tokens, static_cast<int64_t>(layout.parts[i].tokens.size()));
    }
    EXPECT_EQ(request.parts()[0].prefix, ChainedHashes(kSpace, UnitsFromTokens(Prompt().system)));
    EXPECT_THAT(request.parts()[1].prefix, IsEmpty());
    EXPECT_EQ(request.repeated_tokens(), 30);
    EXPECT_EQ(request.prompt(), Prompt());
  }
}

TEST(ChunkedRequest, APullNamesOnlyItsChunksAndTheSystemPart) {
  ChunkedPrompt prompt = Prompt();
  prompt.options.scope = ChunkScope::kAlone;
  const ChunkedRequest request(prompt, kSpace, 512);
  EXPECT_EQ(request.chunks(), (std::vector<std::vector<int32_t>>{{1}, {2, 3}, {1}}));
  const ChunkedPrompt some = request.WithChunks(std::vector<int32_t>{1});
  EXPECT_EQ(some.options, prompt.options);
  EXPECT_EQ(some.system, prompt.system);
  EXPECT_EQ(some.chunks, (std::vector<std::vector<TokenId>>{prompt.chunks[1]}));
  EXPECT_TRUE(some.question.empty());
}

TEST(ChunkedRequest, ASizeThatNoWorkerCanHaveIsTheDefault) {
  const Hash128 usual = ChunkedRequest(Prompt(), kSpace, 4096).parts()[2].key;
  for (const int32_t piece_tokens : {0, -256, 100, INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(ChunkedRequest(Prompt(), kSpace, piece_tokens).parts()[2].key, usual);
  }
}

TEST(ChunkedRequest, ItsShapeCountsPositionsAndBlocks) {
  const PromptShape overlap = ChunkedRequest(Prompt(), kSpace, 4096).shape();
  // 820 tokens; the answer stands behind 40 + 700 + 20 positions.
  EXPECT_EQ(overlap.shared_positions, 820 - 760);
  // In blocks of one token only the repeated chunk takes no slots.
  EXPECT_EQ(overlap.PaddingAt(1), -30);
  // In blocks of 16: 48 + 32 + 704 slots for 800 tokens.
  EXPECT_EQ(overlap.PaddingAt(16), 784 - 800);
  // In blocks of 128: 128 + 128 + 768.
  EXPECT_EQ(overlap.PaddingAt(128), 1024 - 800);

  ChunkedPrompt prompt = Prompt();
  prompt.options.positions = ChunkPositions::kSequential;
  EXPECT_EQ(ChunkedRequest(prompt, kSpace, 4096).shape().shared_positions, 0);
}

TEST(ChunkedRequest, AnEmptySystemPartIsNoPart) {
  ChunkedPrompt prompt = Prompt();
  prompt.system.clear();
  const ChunkedRequest request(prompt, kSpace, 4096);
  EXPECT_EQ(request.parts().size(), 2u);
  EXPECT_EQ(request.parts()[0].tokens, 30);
}

TEST(UsualPieceTokens, IsTheSizeOfMostWorkers) {
  EXPECT_EQ(UsualPieceTokens({}), 4096);
  EXPECT_EQ(UsualPieceTokens(std::vector<int32_t>{0, -1, 100}), 4096);
  EXPECT_EQ(UsualPieceTokens(std::vector<int32_t>{512, 256, 512}), 512);
  EXPECT_EQ(UsualPieceTokens(std::vector<int32_t>{512, 256}), 256);
}

}  // namespace
}  // namespace baton
