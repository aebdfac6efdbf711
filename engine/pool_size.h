// How large a KV pool is, in blocks of its full-attention group and without the scratch block.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

namespace baton {

struct PoolSize {
  int32_t before = 0;    // the limit until now
  int32_t limit = 0;     // what sequences and the prefix cache can have
  int32_t reserved = 0;  // what the limit can grow to
  int32_t retiring = 0;  // behind the limit, and still in use
};

}  // namespace baton
