#include "rpc/chunked_prompt_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/request_bounds.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

ChunkedPrompt Prompt() {
  ChunkedPrompt prompt;
  prompt.system = {1, 2};
  prompt.chunks = {{3}, {4, 5}, {3}};
  prompt.question = {6, 7, 8};
  return prompt;
}

std::string Refusal(const absl::StatusOr<ChunkedPrompt>& prompt) {
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(prompt.status().message());
}

TEST(ChunkedPromptWire, APromptComesBackAsItWasInEveryMode) {
  using Kind = ChunkRepair::Kind;
  for (const ChunkPositions positions : {ChunkPositions::kOverlap, ChunkPositions::kSequential}) {
    for (const ChunkScope scope : {ChunkScope::kSystem, ChunkScope::kAlone}) {
      for (const ChunkRepair& repair :
           {ChunkRepair(), ChunkRepair{.kind = Kind::kFirst, .first_tokens = 16},
            ChunkRepair{.kind = Kind::kShare, .share_millionths = 150'000}}) {
        ChunkedPrompt prompt = Prompt();
        prompt.options = {.positions = positions, .scope = scope, .repair = repair};
        EXPECT_EQ(*ChunkedPromptFromWire(ChunkedPromptToWire(prompt), 0), prompt);
      }
    }
  }
  ChunkedPrompt two_parts = Prompt();
  two_parts.system.clear();
  two_parts.chunks.clear();
  EXPECT_EQ(*ChunkedPromptFromWire(ChunkedPromptToWire(two_parts), 0), two_parts);
}

TEST(ChunkedPromptWire, DefaultsAreNotSent) {
  const v1::ChunkedPrompt wire = ChunkedPromptToWire(Prompt());
  EXPECT_TRUE(wire.chunk_positions().empty());
  EXPECT_TRUE(wire.chunk_scope().empty());
  EXPECT_TRUE(wire.chunk_repair().empty());
}

TEST(ChunkedPromptWire, UnknownOptionsAreRefused) {
  v1::ChunkedPrompt wire = ChunkedPromptToWire(Prompt());
  wire.set_chunk_positions("side");
  EXPECT_THAT(Refusal(ChunkedPromptFromWire(wire, 0)), HasSubstr("chunk_positions is \"side\""));
  wire.set_chunk_positions("overlap");
  wire.set_chunk_scope("all");
  EXPECT_THAT(Refusal(ChunkedPromptFromWire(wire, 0)), HasSubstr("chunk_scope is \"all\""));
  wire.set_chunk_scope("alone");
  for (const char* repair : {"first:-1", "share:2", "share:nan", "last:1", "first:9999999999"}) {
    wire.set_chunk_repair(repair);
    EXPECT_THAT(Refusal(ChunkedPromptFromWire(wire, 0)), HasSubstr("chunk_repair is")) << repair;
  }
}

TEST(ChunkedPromptWire, SizesAreBoundedBeforeTheCopy) {
  v1::ChunkedPrompt wire;
  for (int64_t i = 0; i <= kMaxPromptChunks; ++i) wire.add_chunks();
  EXPECT_THAT(Refusal(ChunkedPromptFromWire(wire, 0)), HasSubstr("501 entries; at most 500"));

  wire.Clear();
  wire.mutable_system()->mutable_ids()->Resize(static_cast<int>(kMaxPromptTokenIds / 2), 1);
  wire.mutable_question()->mutable_ids()->Resize(static_cast<int>(kMaxPromptTokenIds / 2), 1);
  EXPECT_TRUE(ChunkedPromptFromWire(wire, 0).ok());
  wire.add_chunks()->add_ids(1);
  EXPECT_THAT(Refusal(ChunkedPromptFromWire(wire, 0)), HasSubstr("1048577 tokens"));
}

TEST(ChunkedPromptWire, ARequestHasOneKindOfPrompt) {
  EXPECT_THAT(Refusal(ChunkedPromptFromWire(ChunkedPromptToWire(Prompt()), 3)),
              HasSubstr("3 prompt_token_ids"));
}

// What a peer can send without an error here, the checks of the worker refuse.
TEST(ChunkedPromptWire, EmptyPartsAndBadTokensAreLeftToTheCheckOfTheWholePrompt) {
  const auto check = [](const v1::ChunkedPrompt& wire) {
    const absl::StatusOr<ChunkedPrompt> prompt = ChunkedPromptFromWire(wire, 0);
    EXPECT_TRUE(prompt.ok());
    return CheckChunkedPrompt(*prompt, /*context_length=*/100, /*vocabulary=*/10).code();
  };
  EXPECT_EQ(check({}), absl::StatusCode::kInvalidArgument);
  v1::ChunkedPrompt wire = ChunkedPromptToWire(Prompt());
  EXPECT_EQ(check(wire), absl::StatusCode::kOk);
  wire.add_chunks();
  EXPECT_EQ(check(wire), absl::StatusCode::kInvalidArgument) << "an empty chunk";
  for (const int32_t token : {-1, 10, INT32_MIN, INT32_MAX}) {
    wire = ChunkedPromptToWire(Prompt());
    wire.mutable_chunks(1)->add_ids(token);
    EXPECT_EQ(check(wire), absl::StatusCode::kInvalidArgument) << token;
  }
}

TEST(ChunkedPromptWire, WhatAWorkerCanDoComesBackAsItWas) {
  const PromptChunkSupport support{.piece_tokens = 4096,
                                   .refusal = "windows",
                                   .repairs_first = true,
                                   .repairs_share = false,
                                   .hands_over = true};
  EXPECT_EQ(ChunkSupportFromWire(ChunkSupportToWire(support)), support);
  EXPECT_EQ(ChunkSupportFromWire({}), PromptChunkSupport());
  v1::PromptChunkSupport wire;
  wire.set_refusal(std::string(5000, 'x'));
  EXPECT_EQ(ChunkSupportFromWire(wire).refusal.size(), 256u);
}

}  // namespace
}  // namespace baton
