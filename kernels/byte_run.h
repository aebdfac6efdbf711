// One contiguous copy of a list of copies. Host code and kernels share it.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

namespace baton {

// Offsets are in bytes.
struct ByteRun {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;
};

}  // namespace baton
