// CRC32C of long strings by carry-less multiplication, for vectors of any width: the remainder of a
// string is that of a shorter one to which the far part was added after multiplication with a power
// of x (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel, 2009). Four vectors are folded side by side. Unlike the CRC instruction on
// three stretches at once it reads memory in order, which cold memory rewards: it is several times
// as fast there.
//
// Included by one source for each instruction set, whose `V` says what a vector is:
//   V::Value, V::kBytes
//   V::Load(from), V::Store(to, value), V::Stream(to, value)   (Stream: `to` on a boundary)
//   V::Prefetch(address)            which need not be memory of ours
//   V::Fold<kBits>(lanes, next)     every 128-bit lane moved over kBits bits, plus `next`
//   V::AddFirst(value, crc)         crc added to the first 32 bits
//   V::Reduce(a)                    the CRC of one vector
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::crc32c_folding {

// x^n modulo the polynomial, reflected: bit 31 is x^0.
constexpr uint32_t PowerOfX(uint64_t n) {
  uint32_t value = 0x80000000;
  for (uint64_t i = 0; i < n; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78 : 0);
  return value;
}

// Factors that move a 128-bit lane over kBits bits: of its first half, which stands 64 bits further
// from the end, and of its second. The product of reflected values carries 33 powers already.
template <uint64_t kBits>
inline constexpr uint32_t kFirstFactor = PowerOfX(kBits + 31);
template <uint64_t kBits>
inline constexpr uint32_t kSecondFactor = PowerOfX(kBits - 33);

enum class Target : uint8_t { kNone, kStore, kStream };

// A copy past the caches comes in pieces of some kilobytes that lie side by side. Joining the
// vectors at a piece's end would let memory rest; what is asked for this far ahead, into the next
// piece, keeps it busy (a sixth faster on cold memory, pieces of 6 KiB).
inline constexpr uintptr_t kPrefetchAhead = 8192;

// `to` is null where kTarget is kNone.
template <typename V, Target kTarget>
typename V::Value Take([[maybe_unused]] std::byte* to, const std::byte* from, size_t at) {
  const typename V::Value value = V::Load(from + at);
  if constexpr (kTarget == Target::kStore) V::Store(to + at, value);
  if constexpr (kTarget == Target::kStream) {
    V::Prefetch(reinterpret_cast<uintptr_t>(from) + at + kPrefetchAhead);
    V::Stream(to + at, value);
  }
  return value;
}

// The register (not inverted) after `bytes` more bytes, a multiple of 4 * V::kBytes and not 0,
// which are copied to `to` unless kTarget is kNone.
template <typename V, Target kTarget>
uint32_t Eat(uint32_t crc, std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kStep = 4 * V::kBytes;
  const auto take = [&](size_t at) { return Take<V, kTarget>(to, from, at); };
  typename V::Value a = V::AddFirst(take(0), crc);
  typename V::Value b = take(V::kBytes);
  typename V::Value c = take(2 * V::kBytes);
  typename V::Value d = take(3 * V::kBytes);
  for (size_t at = kStep; at < bytes; at += kStep) {
    a = V::template Fold<8 * kStep>(a, take(at));
    b = V::template Fold<8 * kStep>(b, take(at + V::kBytes));
    c = V::template Fold<8 * kStep>(c, take(at + 2 * V::kBytes));
    d = V::template Fold<8 * kStep>(d, take(at + 3 * V::kBytes));
  }
  // Each over its whole way at once: products that do not wait for each other.
  c = V::template Fold<8 * V::kBytes>(c, d);
  b = V::template Fold<16 * V::kBytes>(b, c);
  return V::Reduce(V::template Fold<24 * V::kBytes>(a, b));
}

}  // namespace baton::crc32c_folding
