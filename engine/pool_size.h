// Size of a KV pool, in blocks of its full-attention group, without the scratch block.
#pragma once

#include <cstdint>

namespace baton {

struct PoolSize {
  int32_t before = 0;    // limit before the last change
  int32_t limit = 0;     // blocks that sequences and the prefix cache may use
  int32_t reserved = 0;  // largest possible limit
  int32_t retiring = 0;  // blocks beyond the limit that are still in use
};

}  // namespace baton
