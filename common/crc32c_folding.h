// CRC32C of long strings by carry-less multiplication, for vectors of any width.
//
// Folding shortens a string without changing its remainder. It multiplies the far part by a power
// of x and adds the product to the near part (V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel, 2009). This code folds several vectors side
// by side. It reads memory in order, unlike the CRC instruction on three stretches at once. On cold
// memory it is several times as fast as that.
//
// Each instruction set has one source that includes this header. That source defines a vector type
// `V`:
//   V::Value, V::kBytes
//   V::kVectors                     vectors side by side; they hide the latency of a fold
//   V::Load(from), V::Store(to, value), V::Stream(to, value)   (Stream: `to` is aligned)
//   V::Prefetch(address)            the address need not be valid
//   V::Fold<kBits>(lanes, next)     moves every 128-bit lane by kBits bits and adds `next`
//   V::AddFirst(value, crc)         adds crc to the first 32 bits
//   V::Reduce(a)                    returns the CRC of one vector
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace baton::crc32c_folding {

// Returns x^n modulo the polynomial, reflected: bit 31 is x^0.
constexpr uint32_t PowerOfX(uint64_t n) {
  uint32_t value = 0x80000000;
  for (uint64_t i = 0; i < n; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78 : 0);
  return value;
}

// Factors that move a 128-bit lane by kBits bits. The first half of a lane stands 64 bits further
// from the end than the second, so it has a factor of its own. The product of reflected values
// already carries 33 powers of x.
template <uint64_t kBits>
inline constexpr uint32_t kFirstFactor = PowerOfX(kBits + 31);
template <uint64_t kBits>
inline constexpr uint32_t kSecondFactor = PowerOfX(kBits - 33);

enum class Target : uint8_t { kNone, kStore, kStream };

// How far ahead a streaming copy prefetches. Such a copy comes in pieces of some kilobytes that lie
// side by side. At the end of a piece the vectors are joined, and memory would be idle. Prefetching
// into the next piece keeps it busy: a sixth faster on cold memory with pieces of 6 KiB.
inline constexpr uintptr_t kPrefetchAhead = 8192;

// REQUIRES: `to` is null exactly if kTarget is kNone.
template <typename V, Target kTarget>
typename V::Value Take([[maybe_unused]] std::byte* to, const std::byte* from, size_t at) {
  const typename V::Value value = V::Load(from + at);
  if constexpr (kTarget == Target::kStore) V::Store(to + at, value);
  if constexpr (kTarget == Target::kStream) {
    // One prefetch for each vector, although a line has several: eight vectors of 16 bytes copied
    // an eighth slower with one prefetch for each line.
    V::Prefetch(reinterpret_cast<uintptr_t>(from) + at + kPrefetchAhead);
    V::Stream(to + at, value);
  }
  return value;
}

template <typename V, Target kTarget, size_t... kVector>
uint32_t EatSideBySide(std::index_sequence<kVector...>, uint32_t crc, std::byte* to,
                       const std::byte* from, size_t bytes) {
  constexpr size_t kStep = V::kVectors * V::kBytes;
  const auto take = [&](size_t at) { return Take<V, kTarget>(to, from, at); };
  typename V::Value sums[] = {take(kVector * V::kBytes)...};
  sums[0] = V::AddFirst(sums[0], crc);
  for (size_t at = kStep; at < bytes; at += kStep) {
    ((sums[kVector] = V::template Fold<8 * kStep>(sums[kVector], take(at + kVector * V::kBytes))),
     ...);
  }
  // Folds each vector over its whole distance at once, so that the products do not wait for each
  // other.
  constexpr size_t kLast = V::kVectors - 1;
  typename V::Value joined = sums[kLast];
  const auto join = [&]<size_t kIndex>(std::integral_constant<size_t, kIndex>) {
    if constexpr (kIndex < kLast) {
      joined = V::template Fold<8 * V::kBytes*(kLast - kIndex)>(sums[kIndex], joined);
    }
  };
  (join(std::integral_constant<size_t, kVector>()), ...);
  return V::Reduce(joined);
}

// Returns the CRC register (not inverted) after `bytes` more bytes. Copies them to `to` unless
// kTarget is kNone. REQUIRES: `bytes` is a positive multiple of V::kVectors * V::kBytes.
template <typename V, Target kTarget>
uint32_t Eat(uint32_t crc, std::byte* to, const std::byte* from, size_t bytes) {
  return EatSideBySide<V, kTarget>(std::make_index_sequence<V::kVectors>(), crc, to, from, bytes);
}

}  // namespace baton::crc32c_folding
