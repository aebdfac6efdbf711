#include "router/chunked_request.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cache/chunk_layout.h"

namespace baton {
namespace {

constexpr int32_t kDefaultPieceTokens = 4096;

PromptShape ShapeOf(const ChunkedPrompt& prompt, const ChunkLayout& layout) {
  PromptShape shape;
  shape.shared_positions = TokensOf(prompt) - PositionsOf(prompt).answer;
  const int64_t tokens = TokensOf(prompt) - static_cast<int64_t>(prompt.question.size());
  for (size_t i = 0; i < PromptShape::kBlockSizes; ++i) {
    const int32_t block_size = 1 << i;
    shape.padding[i] = int64_t{layout.BlocksOfParts(block_size)} * block_size - tokens;
  }
  return shape;
}

}  // namespace

ChunkedRequest::ChunkedRequest(ChunkedPrompt prompt, CacheNamespace cache_namespace,
                               int32_t piece_tokens)
    : prompt_(std::move(prompt)) {
  const ChunkLayout layout =
      MakeChunkLayout(prompt_, cache_namespace,
                      CheckPieceTokens(piece_tokens).ok() ? piece_tokens : kDefaultPieceTokens);
  derived_namespace_ = layout.derived_namespace;
  chunks_ = layout.chunks;
  shape_ = ShapeOf(prompt_, layout);
  repeated_tokens_ = TokensOf(prompt_) - static_cast<int64_t>(prompt_.question.size());
  parts_.reserve(layout.parts.size());
  for (const ChunkLayout::Part& part : layout.parts) {
    Part& added = parts_.emplace_back();
    added.key = part.key.hash;
    added.tokens = static_cast<int64_t>(part.tokens.size());
    if (part.kind == ChunkKind::kSystem) {
      added.prefix = ChainedHashes(cache_namespace, UnitsFromTokens(part.tokens));
    }
    repeated_tokens_ -= added.tokens;
  }
}

ChunkedPrompt ChunkedRequest::WithChunks(std::span<const int32_t> chunks) const {
  ChunkedPrompt some;
  some.options = prompt_.options;
  some.system = prompt_.system;
  for (const int32_t chunk : chunks) some.chunks.push_back(prompt_.chunks[chunk]);
  return some;
}

int32_t UsualPieceTokens(std::span<const int32_t> piece_tokens) {
  std::map<int32_t, int> counts;
  for (const int32_t tokens : piece_tokens) {
    if (CheckPieceTokens(tokens).ok()) ++counts[tokens];
  }
  const auto usual =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return usual == counts.end() ? kDefaultPieceTokens : usual->first;
}

}  // namespace baton
