// Parameters of the kernels that serve a synthetic model.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr int kVaryThreads = 256;

struct VaryBitsParams {
  uint32_t* words;          // [count], written
  int64_t count;            // words
  const uint32_t* pattern;  // [pattern_count]
  const uint32_t* mask;     // [pattern_count]; bits of the pattern that become random
  int64_t pattern_count;
  uint64_t seed;
};

struct StampTimeParams {
  uint64_t* count;  // [1], counts the stamps
  uint64_t* times;  // [capacity], nanoseconds; stamp n is at n % capacity
  int64_t capacity;
};

}  // namespace baton
