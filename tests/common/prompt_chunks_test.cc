#include "common/prompt_chunks.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/request_bounds.h"

namespace baton {
namespace {

ChunkedPrompt Prompt(size_t system, const std::vector<size_t>& chunks, size_t question,
                     ChunkPositions positions = ChunkPositions::kOverlap) {
  ChunkedPrompt prompt;
  prompt.options.positions = positions;
  prompt.system.assign(system, 1);
  for (const size_t tokens : chunks) prompt.chunks.emplace_back(tokens, 2);
  prompt.question.assign(question, 3);
  return prompt;
}

absl::Status Refusal(const std::string& text) { return absl::InvalidArgumentError(text); }

TEST(PromptChunks, DefaultsAreTheFirstNamesOfEachOption) {
  const ChunkOptions options;
  EXPECT_EQ(ChunkPositionsName(options.positions), "overlap");
  EXPECT_EQ(ChunkScopeName(options.scope), "system");
  EXPECT_EQ(ChunkRepairName(options.repair), "none");
}

TEST(PromptChunks, NamesOfOptionsReadBackAsTheSameOption) {
  for (const char* name : {"overlap", "sequential"}) {
    EXPECT_EQ(ChunkPositionsName(ParseChunkPositions(name).value()), name);
  }
  for (const char* name : {"system", "alone"}) {
    EXPECT_EQ(ChunkScopeName(ParseChunkScope(name).value()), name);
  }
  for (const char* name : {"none", "first:0", "first:16", "first:1048576", "share:0", "share:0.15",
                           "share:0.000001", "share:1"}) {
    EXPECT_EQ(ChunkRepairName(ParseChunkRepair(name).value()), name);
  }
}

TEST(PromptChunks, RepairKeepsItsNumberExactly) {
  EXPECT_EQ(ParseChunkRepair("first:64").value(),
            (ChunkRepair{.kind = ChunkRepair::Kind::kFirst, .first_tokens = 64}));
  EXPECT_EQ(ParseChunkRepair("share:0.15").value(),
            (ChunkRepair{.kind = ChunkRepair::Kind::kShare, .share_millionths = 150'000}));
  EXPECT_EQ(ParseChunkRepair("share:0.150").value(), ParseChunkRepair("share:0.15").value());
  EXPECT_EQ(ParseChunkRepair("share:1.000").value(), ParseChunkRepair("share:1").value());
}

TEST(PromptChunks, BadOptionsAreRefusedWithTheValueAndWhatIsAllowed) {
  EXPECT_EQ(ParseChunkPositions("Overlap").status(),
            Refusal("chunk_positions is \"Overlap\"; overlap or sequential is allowed"));
  EXPECT_EQ(ParseChunkScope("").status(),
            Refusal("chunk_scope is \"\"; system or alone is allowed"));
  EXPECT_EQ(ParseChunkScope("a\nb").status(),
            Refusal("chunk_scope is \"a\\x0ab\"; system or alone is allowed"));
  for (const char* name : {"",
                           "None",
                           "first",
                           "first:",
                           "first:-1",
                           "first:+1",
                           "first: 1",
                           "first:1.5",
                           "first:1048577",
                           "first:99999999999999999999",
                           "share:",
                           "share:-0",
                           "share:.5",
                           "share:0.",
                           "share:1.1",
                           "share:1.000001",
                           "share:2",
                           "share:0.1234567",
                           "share:1e-3",
                           "share:nan"}) {
    EXPECT_EQ(ParseChunkRepair(name).status(),
              Refusal("chunk_repair is \"" + std::string(name) +
                      "\"; none, first:K with K of 0 to 1048576, or share:R with R of 0 to 1 and "
                      "at most 6 decimals is allowed"));
  }
}

TEST(PromptChunks, FlatTokensFollowTheOrderOfTheParts) {
  ChunkedPrompt prompt;
  prompt.system = {1, 2};
  prompt.chunks = {{3}, {4, 5}};
  prompt.question = {6};
  EXPECT_EQ(FlatTokens(prompt), (std::vector<TokenId>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(TokensOf(prompt), 6);
}

TEST(PromptChunks, OverlappingChunksBeginBehindTheSystemPart) {
  const PartPositions at = PositionsOf(Prompt(10, {5, 20, 7}, 4));
  EXPECT_EQ(at.chunks, (std::vector<int64_t>{10, 10, 10}));
  EXPECT_EQ(at.question, 30);
  EXPECT_EQ(at.answer, 34);
}

TEST(PromptChunks, SequentialPartsFollowEachOther) {
  const PartPositions at = PositionsOf(Prompt(10, {5, 20, 7}, 4, ChunkPositions::kSequential));
  EXPECT_EQ(at.chunks, (std::vector<int64_t>{10, 15, 35}));
  EXPECT_EQ(at.question, 42);
  EXPECT_EQ(at.answer, 46);
}

TEST(PromptChunks, WithoutChunksTheQuestionFollowsTheSystemPart) {
  const PartPositions at = PositionsOf(Prompt(10, {}, 4));
  EXPECT_EQ(at.question, 10);
  EXPECT_EQ(at.answer, 14);
}

TEST(CheckChunkedPrompt, AnEmptySystemPartIsAllowed) {
  EXPECT_TRUE(CheckChunkedPrompt(Prompt(0, {1}, 1), 8, 100).ok());
}

TEST(CheckChunkedPrompt, OtherEmptyPartsAreRefusedByTheirIndex) {
  EXPECT_EQ(CheckChunkedPrompt(Prompt(1, {1, 0, 1}, 1), 0, 0),
            Refusal("part 2 (chunks[1]) has 0 tokens; every part but the system part needs at "
                    "least 1"));
  EXPECT_EQ(CheckChunkedPrompt(Prompt(1, {1, 1}, 0), 0, 0),
            Refusal("part 3 (question) has 0 tokens; every part but the system part needs at "
                    "least 1"));
}

TEST(CheckPartsNotEmpty, TextAndTokenIdsNeedContent) {
  const std::vector<TokenId> none;
  const ChunkedText parts = {
      .system = "", .chunks = {"A", std::vector<TokenId>{1}}, .question = "Q"};
  EXPECT_TRUE(CheckPartsNotEmpty(parts).ok());
  ChunkedText bad = parts;
  bad.chunks[1] = none;
  EXPECT_EQ(CheckPartsNotEmpty(bad),
            Refusal("part 2 (chunks[1]) has 0 tokens; every part but the system part needs at "
                    "least 1"));
  bad = parts;
  bad.question = "";
  EXPECT_EQ(CheckPartsNotEmpty(bad),
            Refusal("part 3 (question) has 0 bytes; every part but the system part needs at "
                    "least 1"));
}

TEST(CheckChunkSeparator, HasAtMost256Bytes) {
  EXPECT_TRUE(CheckChunkSeparator("").ok());
  EXPECT_TRUE(CheckChunkSeparator(std::string(256, '#')).ok());
  EXPECT_EQ(CheckChunkSeparator(std::string(257, '#')),
            Refusal("chunk_separator has 257 bytes; at most 256 are allowed"));
}

TEST(CheckChunkedPrompt, AllPartsTogetherHaveAtMostAMillionTokens) {
  constexpr size_t kQuarter = size_t{1} << 18;
  EXPECT_TRUE(
      CheckChunkedPrompt(Prompt(0, {kQuarter, kQuarter, kQuarter, kQuarter - 1}, 1), 0, 0).ok());
  EXPECT_EQ(CheckChunkedPrompt(Prompt(0, std::vector<size_t>(4, kQuarter), 1), 0, 0),
            Refusal("the prompt has 1048577 tokens; at most 1048576 are allowed"));
}

TEST(CheckChunkedPrompt, FiveHundredChunksAreTheMost) {
  EXPECT_TRUE(CheckChunkedPrompt(Prompt(1, std::vector<size_t>(500, 1), 1), 0, 0).ok());
  EXPECT_EQ(CheckChunkedPrompt(Prompt(1, std::vector<size_t>(501, 1), 1), 0, 0),
            Refusal("chunks has 501 entries; at most 500 are allowed"));
}

TEST(CheckChunkedPrompt, TokensOutsideTheVocabularyAreRefused) {
  ChunkedPrompt prompt = Prompt(1, {2, 2}, 1);
  prompt.chunks[1][1] = 100;
  EXPECT_EQ(CheckChunkedPrompt(prompt, 0, 100), Refusal("chunks[1][1] is 100; [0, 99] is allowed"));
  prompt.system[0] = -1;
  EXPECT_EQ(CheckChunkedPrompt(prompt, 0, 100), Refusal("system[0] is -1; [0, 99] is allowed"));
}

// The context bounds positions. Overlapping chunks share them, so 300 tokens fit a context of 128.
TEST(CheckChunkedPrompt, TheContextBoundsPositionsAndNotTokens) {
  const std::vector<size_t> chunks = {100, 100, 100};
  EXPECT_TRUE(CheckChunkedPrompt(Prompt(10, chunks, 10), 128, 0).ok());
  EXPECT_EQ(CheckChunkedPrompt(Prompt(10, chunks, 10, ChunkPositions::kSequential), 128, 0),
            Refusal("part 2 (chunks[1]) reaches position 209; the context of 128 tokens ends at "
                    "position 127"));
}

TEST(CheckChunkedPrompt, APositionPastTheContextNamesThePart) {
  EXPECT_EQ(CheckChunkedPrompt(Prompt(129, {1}, 1), 128, 0),
            Refusal("part 0 (system) reaches position 128; the context of 128 tokens ends at "
                    "position 127"));
  EXPECT_EQ(CheckChunkedPrompt(Prompt(10, {100}, 19), 128, 0),
            Refusal("part 2 (question) reaches position 128; the context of 128 tokens ends at "
                    "position 127"));
}

TEST(CheckChunkedPrompt, TheContextMustLeaveAPositionForTheAnswer) {
  EXPECT_TRUE(CheckChunkedPrompt(Prompt(10, {100}, 17), 128, 0).ok());
  EXPECT_EQ(CheckChunkedPrompt(Prompt(10, {100}, 18), 128, 0),
            Refusal("part 2 (question) reaches position 127; the context of 128 tokens leaves none "
                    "to generate"));
}

}  // namespace
}  // namespace baton
