// CRC32C with AVX-512 and VPCLMULQDQ: common/crc32c_folding.h with vectors of 64 bytes.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "common/crc32c.h"
#include "common/crc32c_copy.h"
#include "common/crc32c_folding.h"

namespace baton {
namespace {

struct Vector512 {
  using Value = __m512i;
  static constexpr size_t kBytes = 64;
  static constexpr size_t kVectors = 4;

  static Value Load(const std::byte* from) { return _mm512_loadu_si512(from); }
  static void Store(std::byte* to, Value value) { _mm512_storeu_si512(to, value); }
  static void Stream(std::byte* to, Value value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value);
  }
  static void Prefetch(uintptr_t address) {
    _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);
  }
  template <uint64_t kBits>
  static Value Fold(Value lanes, Value next) {
    const __m512i factors = _mm512_broadcast_i32x4(Factors<kBits>());
    const __m512i first = _mm512_clmulepi64_epi128(lanes, factors, 0x00);
    const __m512i second = _mm512_clmulepi64_epi128(lanes, factors, 0x11);
    return _mm512_ternarylogic_epi64(first, second, next, 0x96);  // exclusive or of all three
  }
  static Value AddFirst(Value value, uint32_t crc) {
    return _mm512_xor_si512(value,
                            _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  }
  static uint32_t Reduce(Value a) {
    __m128i lane = _mm512_extracti32x4_epi32(a, 3);
    lane = FoldLane<128>(_mm512_extracti32x4_epi32(a, 2), lane);
    lane = FoldLane<256>(_mm512_extracti32x4_epi32(a, 1), lane);
    lane = FoldLane<384>(_mm512_extracti32x4_epi32(a, 0), lane);
    const uint64_t crc = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(lane)));
    return static_cast<uint32_t>(
        _mm_crc32_u64(crc, static_cast<uint64_t>(_mm_extract_epi64(lane, 1))));
  }

 private:
  template <uint64_t kBits>
  static __m128i Factors() {
    using crc32c_folding::kFirstFactor, crc32c_folding::kSecondFactor;
    return _mm_setr_epi32(static_cast<int>(kFirstFactor<kBits>), 0,
                          static_cast<int>(kSecondFactor<kBits>), 0);
  }
  template <uint64_t kBits>
  static __m128i FoldLane(__m128i lane, __m128i next) {
    const __m128i first = _mm_clmulepi64_si128(lane, Factors<kBits>(), 0x00);
    const __m128i second = _mm_clmulepi64_si128(lane, Factors<kBits>(), 0x11);
    return _mm_ternarylogic_epi64(first, second, next, 0x96);
  }
};

constexpr size_t kStep = Vector512::kVectors * Vector512::kBytes;

}  // namespace

uint32_t ExtendCrc32cAvx512(uint32_t crc, std::span<const std::byte> data) {
  using crc32c_folding::Eat, crc32c_folding::Target;
  const size_t whole = data.size() / kStep * kStep;
  if (whole > 0) crc = ~Eat<Vector512, Target::kNone>(~crc, nullptr, data.data(), whole);
  return ExtendCrc32cHardware(crc, data.subspan(whole));
}

uint32_t CopyCrc32cAvx512(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                          uint32_t crc) {
  using crc32c_folding::Eat, crc32c_folding::Target;
  const size_t whole = from.size() / kStep * kStep;
  if (whole > 0) {
    const bool stream =
        stores == CopyStores::kStreaming && reinterpret_cast<uintptr_t>(to) % 64 == 0;
    crc = ~(stream ? Eat<Vector512, Target::kStream>(~crc, to, from.data(), whole)
                   : Eat<Vector512, Target::kStore>(~crc, to, from.data(), whole));
  }
  // The CRC of the rest is taken from the copy, because no other process writes there.
  if (whole < from.size()) std::memcpy(to + whole, from.data() + whole, from.size() - whole);
  return ExtendCrc32cHardware(crc, std::span<const std::byte>(to + whole, from.size() - whole));
}

}  // namespace baton

#endif
