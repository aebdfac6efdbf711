// A part of chunked prompts that requests use (prompt_parts.h). Its users share it; with the last
// one it ends.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/chunk_cache.h"
#include "cache/packed_kv.h"
#include "common/strong_int.h"
#include "engine/prompt_parts.h"

namespace baton {

class PromptParts::LivePart {
 public:
  explicit LivePart(PromptParts* parts) : parts_(parts) {}
  ~LivePart() { parts_->Drop(*this); }
  LivePart(const LivePart&) = delete;
  LivePart& operator=(const LivePart&) = delete;

  ChunkKey key;
  ChunkKind kind = ChunkKind::kChunk;
  int32_t length = 0;  // tokens
  int32_t position = 0;
  std::vector<TokenId> tokens;                // of a part with a sequence in the scheduler
  std::optional<SequenceId> sequence;         // in the scheduler
  std::optional<SequenceId> cached_sequence;  // only in the cache: locks blocks of the tree
  ChunkCache::Reference stored;
  std::vector<BlockId> blocks;    // empty: not known yet
  std::vector<PartPointer> sees;  // until it is done
  bool done = false;
  SequenceId created_by;
  int32_t computed = 0;  // tokens
  int32_t received = 0;  // tokens that came from a peer
  bool wakes = false;    // its KV comes from host memory; false again if that failed
  std::shared_ptr<const PackedKv> asleep;  // until it has blocks to wake in; from ChunkTier::ToWake
  std::vector<SequenceId> waiters;         // main sequences, until it is done

 private:
  PromptParts* const parts_;
};

}  // namespace baton
