// CRC32C by the SSE4.2 instruction. One instruction takes three cycles but one can start in each,
// so three neighbouring stretches are summed side by side and joined: crc(a‖b‖c) = crc(a)·x^(8|bc|)
// + crc(b)·x^(8|c|) + crc(c) over GF(2) modulo the polynomial (V. Gopal et al., "Fast CRC
// Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011).
#if defined(__x86_64__)

#include <nmmintrin.h>
#include <wmmintrin.h>

#include <cstring>

#include "common/crc32c.h"

namespace baton {
namespace {

// x^n modulo the polynomial, reflected: bit 31 is x^0.
constexpr uint32_t PowerOfX(uint64_t n) {
  uint32_t value = 0x80000000;
  for (uint64_t i = 0; i < n; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78 : 0);
  return value;
}

// The factor that Shift takes to move a CRC over `bytes` zero bytes. The carry-less product of two
// reflected 32-bit values stands for their product times x, and the CRC instruction multiplies what
// it reduces by x^32: 33 powers are already there.
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

// Eats as many runs of three stretches of kStretch bytes as there are.
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

}  // namespace

uint32_t ExtendCrc32cHardware(uint32_t crc32, std::span<const std::byte> data) {
  const std::byte* p = data.data();
  size_t left = data.size();
  uint64_t crc = ~crc32;
  crc = EatTriples<1024>(crc, p, left);
  crc = EatTriples<128>(crc, p, left);
  for (; left >= 8; left -= 8, p += 8) crc = _mm_crc32_u64(crc, Load(p));
  uint32_t tail = static_cast<uint32_t>(crc);
  for (; left > 0; --left, ++p) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*p));
  return ~tail;
}

}  // namespace baton

#endif
