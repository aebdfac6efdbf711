// CRC32C with the SSE4.2 instruction. The instruction takes three cycles, but one can start in each
// cycle. So this code processes three neighbouring stretches side by side and joins them:
// crc(a‖b‖c) = crc(a)·x^(8|bc|) + crc(b)·x^(8|c|) + crc(c) over GF(2) modulo the polynomial (V.
// Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011).
// Long strings use common/crc32c_folding.h with vectors of 16 bytes instead.
#if defined(__x86_64__)

#include <nmmintrin.h>
#include <wmmintrin.h>

#include <cstring>

#include "common/crc32c.h"
#include "common/crc32c_copy.h"
#include "common/crc32c_folding.h"

namespace baton {
namespace {

using crc32c_folding::Eat, crc32c_folding::PowerOfX, crc32c_folding::Target;

// Returns the factor with which Shift() moves a CRC over `bytes` zero bytes. The carry-less product
// of two reflected 32-bit values is their product times x. The CRC instruction multiplies its input
// by x^32. So 33 powers of x are already there.
constexpr uint32_t ShiftFactor(uint64_t bytes) { return PowerOfX(8 * bytes - 33); }

uint64_t Shift(uint64_t crc, uint32_t factor) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<int64_t>(crc)),
                                               _mm_cvtsi32_si128(static_cast<int>(factor)), 0);
  return _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product)));
}

uint64_t Load(const std::byte* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// Processes runs of three stretches of kStretch bytes while enough bytes are left.
template <size_t kStretch>
uint64_t EatTriples(uint64_t crc, const std::byte*& p, size_t& left) {
  constexpr uint32_t kShiftOne = ShiftFactor(kStretch);
  constexpr uint32_t kShiftTwo = ShiftFactor(2 * kStretch);
  while (left >= 3 * kStretch) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      crc = _mm_crc32_u64(crc, Load(p + i));
      b = _mm_crc32_u64(b, Load(p + kStretch + i));
      c = _mm_crc32_u64(c, Load(p + 2 * kStretch + i));
    }
    crc = Shift(crc, kShiftTwo) ^ Shift(b, kShiftOne) ^ c;
    p += 3 * kStretch;
    left -= 3 * kStretch;
  }
  return crc;
}

struct Vector128 {
  using Value = __m128i;
  static constexpr size_t kBytes = 16;
  // A carry-less product takes up to seven cycles (Skylake), and one can start in each cycle. Each
  // vector needs two products. Eight vectors have sixteen, more than seven cycles can start.
  static constexpr size_t kVectors = 8;

  static Value Load(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static void Store(std::byte* to, Value value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
  }
  static void Stream(std::byte* to, Value value) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), value);
  }
  static void Prefetch(uintptr_t address) {
    _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);
  }
  template <uint64_t kBits>
  static Value Fold(Value lanes, Value next) {
    const __m128i factors =
        _mm_setr_epi32(static_cast<int>(crc32c_folding::kFirstFactor<kBits>), 0,
                       static_cast<int>(crc32c_folding::kSecondFactor<kBits>), 0);
    const __m128i first = _mm_clmulepi64_si128(lanes, factors, 0x00);
    const __m128i second = _mm_clmulepi64_si128(lanes, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), next);
  }
  static Value AddFirst(Value value, uint32_t crc) {
    return _mm_xor_si128(value, _mm_cvtsi32_si128(static_cast<int>(crc)));
  }
  static uint32_t Reduce(Value a) {
    const uint64_t crc = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(a)));
    return static_cast<uint32_t>(
        _mm_crc32_u64(crc, static_cast<uint64_t>(_mm_extract_epi64(a, 1))));
  }
};

constexpr size_t kStep = Vector128::kVectors * Vector128::kBytes;
constexpr size_t kLong = 1024;

}  // namespace

uint32_t CopyCrc32cSse42(std::byte* to, std::span<const std::byte> from, CopyStores stores,
                         uint32_t crc) {
  const size_t whole = from.size() / kStep * kStep;
  if (whole > 0) {
    const bool stream =
        stores == CopyStores::kStreaming && reinterpret_cast<uintptr_t>(to) % 16 == 0;
    crc = ~(stream ? Eat<Vector128, Target::kStream>(~crc, to, from.data(), whole)
                   : Eat<Vector128, Target::kStore>(~crc, to, from.data(), whole));
  }
  // The CRC of the rest is taken from the copy, because no other process writes there.
  if (whole < from.size()) std::memcpy(to + whole, from.data() + whole, from.size() - whole);
  return ExtendCrc32cHardware(crc, std::span<const std::byte>(to + whole, from.size() - whole));
}

uint32_t ExtendCrc32cHardware(uint32_t crc32, std::span<const std::byte> data) {
  const std::byte* p = data.data();
  size_t left = data.size();
  uint64_t crc = ~crc32;
  if (left >= kLong) {
    const size_t whole = left / kStep * kStep;
    crc = Eat<Vector128, Target::kNone>(static_cast<uint32_t>(crc), nullptr, p, whole);
    p += whole;
    left -= whole;
  }
  crc = EatTriples<128>(crc, p, left);
  for (; left >= 8; left -= 8, p += 8) crc = _mm_crc32_u64(crc, Load(p));
  uint32_t tail = static_cast<uint32_t>(crc);
  for (; left > 0; --left, ++p) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*p));
  return ~tail;
}

}  // namespace baton

#endif
