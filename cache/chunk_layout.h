// Layout of a chunked prompt: its parts, what each part sees, and at which position it stands.
//
// A part is what the chunk cache stores: the system part, a chunk, or a piece of a long chunk. A
// chunk is divided into pieces every `piece_tokens` tokens. A later piece sees the earlier ones, so
// the division changes no bit (kernels/NUMERICS.md §8).
//
// Every part is computed once, at its own position. A request in which the part stands elsewhere
// sees it with a position shift. So a part's bits do not depend on its place or its neighbours.
//
// Pure. Thread safety: plain data; pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cache/cache_key.h"
#include "cache/chunk_cache.h"
#include "cache/sequence_frame.h"
#include "common/prompt_chunks.h"
#include "common/strong_int.h"

namespace baton {

struct ChunkLayout {
  struct Part {
    ChunkKey key;
    ChunkKind kind = ChunkKind::kChunk;
    std::vector<TokenId> tokens;
    int32_t position = 0;       // of the first token, where the part is computed
    std::vector<int32_t> sees;  // indices of parts, in the order of attention
  };
  // A part as the question sees it.
  struct Place {
    int32_t part = 0;
    int32_t shift = 0;  // position in this prompt, less the position where the part is computed
  };

  CacheNamespace cache_namespace;  // the request's: of the system part and of the keys
  // Of the question and the answer. It depends on everything that they see.
  CacheNamespace derived_namespace;
  std::vector<Part> parts;  // each part once, also if it stands in several places
  std::vector<Place> places;
  std::vector<std::vector<int32_t>> chunks;  // the parts of each chunk, in the request's order
  int32_t question_position = 0;

  // Number of different shifts other than 0. Each one costs a shifted query for every token of the
  // question and of the answer.
  int32_t shifts() const;
  // Blocks that all parts take, and slots that the frame of the question has.
  int32_t BlocksOfParts(int32_t block_size) const;
  int64_t SlotsOfFrame(int32_t block_size) const;
};

// InvalidArgument if a piece of a long chunk cannot have this many tokens: it must be a positive
// multiple of 256.
absl::Status CheckPieceTokens(int32_t piece_tokens);

// REQUIRES: CheckChunkedPrompt(prompt) and CheckPieceTokens are OK.
ChunkLayout MakeChunkLayout(const ChunkedPrompt& prompt, CacheNamespace cache_namespace,
                            int32_t piece_tokens);

// A part with blocks, as a frame needs it.
struct FramePart {
  std::span<const BlockId> blocks;
  int32_t tokens = 0;
  int32_t shift = 0;
  // The part is a later piece of the chunk before it. Both share a run.
  bool continues = false;
};

// Returns the frame of a sequence whose first slot has position `begin_position`, without `holds`.
// REQUIRES: each part has the blocks of its tokens; a part that a piece continues ends at a block
// boundary.
SequenceFrame MakeFrame(std::span<const FramePart> parts, int32_t begin_position,
                        int32_t block_size);

}  // namespace baton
