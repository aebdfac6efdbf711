// Copy of a shared block that a fork must make before its first write.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "common/strong_int.h"

namespace baton {

// Copy slots [0, tokens) of block `from` to block `to`. Both belong to KV group `group`.
struct BlockCopy {
  BlockId from;
  BlockId to;
  int32_t tokens;
  int32_t group = 0;
  bool operator==(const BlockCopy&) const = default;
};

}  // namespace baton
