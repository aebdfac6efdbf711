#include "rpc/prompt_chunks_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(PromptChunksWire, PartsComeBackAsTheyWere) {
  const ChunkedText parts = {.system = "S",
                             .chunks = {"A", std::vector<TokenId>{1, 2}, ""},
                             .question = std::vector<TokenId>()};
  const ChunkedText back = PartsFromWire(PartsToWire(parts));
  EXPECT_EQ(back.system, parts.system);
  EXPECT_EQ(back.chunks, parts.chunks);
  EXPECT_EQ(back.question, parts.question);
}

TEST(PromptChunksWire, APartThatIsNotSetIsEmptyText) {
  EXPECT_EQ(PartFromWire(v1::PromptPart()), PromptPart(""));
  EXPECT_EQ(PartsFromWire(v1::PromptParts()).question, PromptPart(""));
}

TEST(PromptChunksWire, SizesAreThoseOfAllParts) {
  v1::GenerateRequest request;
  *request.mutable_parts() =
      PartsToWire({.system = "abc", .chunks = {std::vector<TokenId>{1, 2}, "de"}, .question = "f"});
  const PartSizes parts = PartSizesOf(request);
  EXPECT_EQ(parts.chunks, 2);
  EXPECT_EQ(parts.bytes, 6);
  EXPECT_EQ(parts.token_ids, 2);

  request.Clear();
  for (int i = 0; i < 2; ++i) {
    v1::ChatMessage* const message = request.mutable_messages()->add_messages();
    message->set_content("not counted here");
    *message->add_chunks() = PartToWire("ab");
    *message->add_chunks() = PartToWire(std::vector<TokenId>{1, 2, 3});
  }
  const PartSizes messages = PartSizesOf(request);
  EXPECT_EQ(messages.chunks, 4);
  EXPECT_EQ(messages.bytes, 4);
  EXPECT_EQ(messages.token_ids, 6);
}

TEST(PromptChunksWire, OptionsComeBackAsTheyWere) {
  for (const ChunkPositions positions : {ChunkPositions::kOverlap, ChunkPositions::kSequential}) {
    for (const ChunkScope scope : {ChunkScope::kSystem, ChunkScope::kAlone}) {
      for (const char* repair : {"none", "first:16", "share:0.15"}) {
        const ChunkOptions options = {
            .positions = positions, .scope = scope, .repair = *ParseChunkRepair(repair)};
        v1::GenerateRequest wire;
        ChunkOptionsToWire(options, wire);
        EXPECT_EQ(*ChunkOptionsFromWire(wire), options);
      }
    }
  }
}

TEST(PromptChunksWire, DefaultOptionsAreAbsent) {
  v1::GenerateRequest wire;
  ChunkOptionsToWire(ChunkOptions(), wire);
  EXPECT_EQ(wire.ByteSizeLong(), 0u);
  EXPECT_EQ(*ChunkOptionsFromWire(wire), ChunkOptions());
}

TEST(PromptChunksWire, UnknownOptionsAreRefusedByFieldAndValue) {
  const auto refusal = [](const v1::GenerateRequest& wire) {
    const absl::Status status = ChunkOptionsFromWire(wire).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  v1::GenerateRequest positions;
  positions.set_chunk_positions("");
  EXPECT_THAT(refusal(positions), HasSubstr("chunk_positions is \"\"; overlap or sequential"));
  v1::GenerateRequest scope;
  scope.set_chunk_scope("System");
  EXPECT_THAT(refusal(scope), HasSubstr("chunk_scope is \"System\"; system or alone"));
  v1::GenerateRequest repair;
  repair.set_chunk_repair("first");
  EXPECT_THAT(refusal(repair), HasSubstr("chunk_repair is \"first\"; none, first:K"));
}

}  // namespace
}  // namespace baton
