// Chunked prompts for engines with the small model, and ways to run it that must change no bit.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/prompt_chunks.h"
#include "engine/engine.h"
#include "tests/engine/chunk_modes.h"
#include "tests/engine/tiny_engine.h"

namespace baton {

inline constexpr int32_t kTinyAnswer = 8;

inline std::vector<TokenId> TinyText(int32_t count, uint64_t seed) {
  return TinyRequest(count, 1, seed).prompt;
}

inline ChunkedPrompt PromptOf(ChunkOptions mode, int32_t system, const std::vector<int32_t>& chunks,
                              int32_t question) {
  ChunkedPrompt prompt{
      .options = mode, .system = TinyText(system, 1), .chunks = {}, .question = {}};
  for (size_t i = 0; i < chunks.size(); ++i) prompt.chunks.push_back(TinyText(chunks[i], 10 + i));
  prompt.question = TinyText(question, 2);
  return prompt;
}

// `seed` even: greedy.
inline GenerateRequest RequestOf(const ChunkedPrompt& prompt, uint64_t seed = 0) {
  GenerateRequest request = TinyRequest(1, kTinyAnswer, seed);
  request.prompt = FlatTokens(prompt);
  request.chunked = prompt;
  return request;
}

inline void ExpectSame(const SinkRecord& one, const SinkRecord& other) {
  ASSERT_TRUE(one.finish.has_value()) << *one.error;
  ASSERT_TRUE(other.finish.has_value()) << *other.error;
  EXPECT_EQ(one.tokens, other.tokens);
  EXPECT_NE(one.finish->logits_hash, 0u);
  EXPECT_EQ(one.finish->logits_hash, other.finish->logits_hash);
}

inline std::vector<EngineOptions> OtherWays() {
  std::vector<EngineOptions> ways(8, TinyOptions());
  ways[0].chunk_cache_share = 0;
  ways[1].paged = false;
  ways[1].kv_blocks = 200;
  ways[2].block_size = 8;
  ways[2].kv_blocks = 200;
  ways[2].max_chunk_tokens = 5;
  ways[3].block_size = 64;
  ways[3].layout = KvLayoutKind::kLayerMajor;
  ways[4].token_budget = 7;
  ways[4].graph = false;
  ways[5].prefix_cache = false;
  ways[5].threads = 3;
  ways[6].device = "cpu-async";
  ways[6].steps_in_flight = 2;
  ways[6].token_budget = 24;
  ways[7].kv_blocks = 16;  // parts and answers do not fit beside others
  return ways;
}

// The prompt gets the answer `expected` in a batch with itself and an ordinary prompt.
inline void ExpectSameBesideOthers(Engine& engine, const ChunkedPrompt& prompt,
                                   const SinkRecord& expected) {
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    engine.Generate(i == 1 ? TinyRequest(30, 20, 3) : RequestOf(prompt), sinks.back());
  }
  ExpectSame(sinks[0]->WaitForEnd(), expected);
  ExpectSame(sinks[2]->WaitForEnd(), expected);
  sinks[1]->WaitForEnd();
}

}  // namespace baton
