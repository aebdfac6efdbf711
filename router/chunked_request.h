// A chunked prompt at the router: under which hashes the fleet's index knows its parts, and how it
// counts against a worker's limits.
//
// The router makes the same keys as the workers (cache/chunk_layout.h). A worker reports each
// cached chunk as a unit with the chunk's key. The system part is in the prefix cache under the
// ordinary namespace, and the worker also reports a key for its part-full last block. Question and
// answers are in the prefix cache under a derived namespace.
//
// Keys depend on the size of pieces only if a chunk is longer. Chunks of workers with another size
// of pieces then count as not cached.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache_key.h"
#include "common/prompt_chunks.h"
#include "routing/prompt_shape.h"

namespace baton {

class ChunkedRequest {
 public:
  // A part that workers cache, each once: the system part, a chunk, or a piece of a long chunk.
  struct Part {
    Hash128 key;
    int64_t tokens = 0;
    std::vector<Hash128> prefix;  // of the system part: its units in the prefix cache
  };

  // REQUIRES: CheckChunkedPrompt(prompt) is OK; the prompt has a system part or a chunk.
  ChunkedRequest(ChunkedPrompt prompt, CacheNamespace cache_namespace, int32_t piece_tokens);

  const ChunkedPrompt& prompt() const { return prompt_; }
  const std::vector<Part>& parts() const { return parts_; }
  // The parts of each chunk, as indices.
  const std::vector<std::vector<int32_t>>& chunks() const { return chunks_; }
  // The system part and some of the chunks, as indices; the question is empty.
  ChunkedPrompt WithChunks(std::span<const int32_t> chunks) const;
  // Of question and answers.
  CacheNamespace derived_namespace() const { return derived_namespace_; }
  const PromptShape& shape() const { return shape_; }
  // Tokens of chunks that the prompt names again. They are computed once.
  int64_t repeated_tokens() const { return repeated_tokens_; }

 private:
  const ChunkedPrompt prompt_;
  std::vector<Part> parts_;
  std::vector<std::vector<int32_t>> chunks_;
  CacheNamespace derived_namespace_;
  PromptShape shape_;
  int64_t repeated_tokens_ = 0;
};

// The size of pieces that most of these workers have; the default for sizes that no worker can
// have. Equal counts: the smallest.
int32_t UsualPieceTokens(std::span<const int32_t> piece_tokens);

}  // namespace baton
