// One copy of a list of copies: contiguous bytes, or rows of bytes at equal distances. Host code
// and kernels share them.
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

// Offsets and strides are in bytes. Strides may be anything if there is one row.
struct ByteRows {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;  // of a row
  int64_t rows = 1;
  int64_t from_stride = 0;
  int64_t to_stride = 0;
};

}  // namespace baton
