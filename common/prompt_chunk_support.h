// What a worker can do with chunked prompts. Workers announce it, and routers choose by it. A
// worker of an older build announces nothing.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "common/prompt_chunks.h"

namespace baton {

struct PromptChunkSupport {
  int32_t piece_tokens = 0;    // longer chunks are stored in pieces of this many tokens
  std::string refusal = {};    // why the worker refuses every chunked prompt; empty: it takes them
  bool repairs_first = false;  // it can do chunk_repair first:K
  bool repairs_share = false;  // it can do chunk_repair share:R
  // The worker hands the KV of chunked prompts over to others, and takes it from them.
  bool hands_over = false;

  bool Repairs(const ChunkRepair& repair) const {
    if (repair.RepairsNothing()) return true;
    return repair.kind == ChunkRepair::Kind::kFirst ? repairs_first : repairs_share;
  }
  bool Takes(const ChunkRepair& repair) const { return refusal.empty() && Repairs(repair); }

  friend bool operator==(const PromptChunkSupport&, const PromptChunkSupport&) = default;
};

}  // namespace baton
