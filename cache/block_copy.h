// What a fork's first write asks for: a block of its own with what the shared one holds.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "common/strong_int.h"

namespace baton {

// Slots [0, tokens) of block `from` are to be copied into block `to`, both of KV group `group`.
struct BlockCopy {
  BlockId from;
  BlockId to;
  int32_t tokens;
  int32_t group = 0;
  bool operator==(const BlockCopy&) const = default;
};

}  // namespace baton
