// Prompts of the speed figures of chunk_bench: one system part, chunks, and a new question for each
// request. All tokens are random, but equal for equal seeds.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "common/prompt_chunks.h"
#include "engine/request.h"

namespace baton {

struct ChunkShape {
  int32_t chunks = 8;
  int32_t chunk_tokens = 512;
  int32_t system_tokens = 64;
  int32_t question_tokens = 32;

  int32_t all_chunk_tokens() const { return chunks * chunk_tokens; }
  // Tokens before the question.
  int32_t prefix_tokens() const { return system_tokens + all_chunk_tokens(); }
};

class ChunkPrompts {
 public:
  ChunkPrompts(const ChunkShape& shape, int32_t vocabulary, uint64_t seed)
      : shape_(shape), vocabulary_(vocabulary), random_(seed) {
    prompt_.system = Tokens(shape.system_tokens);
    for (int32_t i = 0; i < shape.chunks; ++i) prompt_.chunks.push_back(Tokens(shape.chunk_tokens));
  }

  // The chunked prompt with a question that no other prompt has.
  ChunkedPrompt Chunked(const ChunkOptions& options) {
    ChunkedPrompt prompt = prompt_;
    prompt.options = options;
    prompt.question = Tokens(shape_.question_tokens);
    return prompt;
  }
  // The same tokens as an ordinary prompt.
  std::vector<TokenId> Ordinary() { return FlatTokens(Chunked({})); }
  // Random tokens. The first 16 ids are left out, because control tokens are often there.
  std::vector<TokenId> Tokens(int32_t count) {
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < count; ++i) {
      tokens.push_back(
          static_cast<TokenId>(16 + random_() % static_cast<uint64_t>(vocabulary_ - 16)));
    }
    return tokens;
  }
  const ChunkShape& shape() const { return shape_; }

 private:
  const ChunkShape shape_;
  const int32_t vocabulary_;
  std::mt19937_64 random_;
  ChunkedPrompt prompt_;
};

// A greedy request that gives exactly `max_tokens` tokens.
inline GenerateRequest GreedyRequest(std::vector<TokenId> prompt, int32_t max_tokens,
                                     CacheNamespace cache_namespace) {
  GenerateRequest request;
  request.request_id = "chunk_bench";
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.seed = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.cache_namespace = cache_namespace;
  return request;
}
inline GenerateRequest GreedyRequest(const ChunkedPrompt& prompt, int32_t max_tokens,
                                     CacheNamespace cache_namespace) {
  GenerateRequest request = GreedyRequest(FlatTokens(prompt), max_tokens, cache_namespace);
  request.chunked = prompt;
  return request;
}

}  // namespace baton
