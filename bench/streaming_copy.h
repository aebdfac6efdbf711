// Copies with streaming stores of 16 or 64 bytes, which bypass the caches. The benchmark compares
// CopyCrc32c (common/crc32c_copy.h), which also computes a checksum, with them.
//
// REQUIRES: lengths are multiples of 64 bytes; targets are aligned to 64 bytes.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstring>
#include <span>

#include "common/crc32c.h"

namespace baton {

// The same copy as CopyCrc32c, without the checksum.
inline void StreamingCopy16(std::byte* to, std::span<const std::byte> from) {
#if defined(__x86_64__)
  for (size_t at = 0; at < from.size(); at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.data() + at)));
  }
#else
  std::memcpy(to, from.data(), from.size());
#endif
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) inline void StreamingCopy64(std::byte* to,
                                                               std::span<const std::byte> from) {
  for (size_t at = 0; at < from.size(); at += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(from.data() + at));
  }
}
#endif

// Copies with the widest stores of this machine.
inline void WidestCopy(std::byte* to, std::span<const std::byte> from) {
#if defined(__x86_64__)
  if (Crc32cAvx512Available()) return StreamingCopy64(to, from);
#endif
  StreamingCopy16(to, from);
}

}  // namespace baton
