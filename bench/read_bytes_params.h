// Parameters of the kernel that measures a GPU's read bandwidth.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr int kReadThreads = 256;

struct ReadBytesParams {
  const void* bytes;  // 16-byte aligned
  int64_t count;      // of 16-byte words
  uint32_t* sink;     // [1]; written only if all words are zero
};

}  // namespace baton
