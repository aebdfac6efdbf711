#include "cache/block_units.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton {
namespace {

// Units in one iteration of the write loop.
constexpr size_t kTogether = 8;

// Returns true if every unit equals its lower half, with a zero upper half.
bool EqualLower(const uint32_t* lower, const CacheUnit* units, size_t count) {
  CacheUnit differing = 0;
  for (size_t i = 0; i < count && differing == 0; ++i) differing = units[i] ^ lower[i];
  return differing == 0;
}

#if defined(__x86_64__)
// Units compared before the loop tests for a difference.
constexpr size_t kStride = 32;

[[gnu::target("avx2")]] bool EqualLowerAvx2(const uint32_t* lower, const CacheUnit* units,
                                            size_t count) {
  size_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    __m256i differing = _mm256_setzero_si256();
    for (size_t j = i; j < i + kStride; j += 4) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower + j));
      const __m256i whole = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(units + j));
      differing =
          _mm256_or_si256(differing, _mm256_xor_si256(whole, _mm256_cvtepu32_epi64(halves)));
    }
    if (_mm256_testz_si256(differing, differing) == 0) return false;
  }
  return EqualLower(lower + i, units + i, count - i);
}

const auto equal_lower = __builtin_cpu_supports("avx2") ? EqualLowerAvx2 : EqualLower;
#else
constexpr auto equal_lower = EqualLower;
#endif

}  // namespace

BlockUnits::BlockUnits(int32_t block_size, int32_t blocks)
    : block_size_(block_size),
      lower_(std::make_unique_for_overwrite<uint32_t[]>(size_t(blocks) * std::max(block_size, 1))),
      upper_(std::make_unique_for_overwrite<uint32_t[]>(size_t(blocks) * std::max(block_size, 1))),
      is_wide_(std::make_unique_for_overwrite<uint8_t[]>(blocks)) {
  CHECK_GE(block_size, 1);
}

void BlockUnits::WriteBlock(BlockId block, std::span<const CacheUnit> units) {
  uint32_t* const lower = &lower_[Offset(block)];
  CacheUnit bits = 0;
  size_t i = 0;
  // Fixed lengths, so that compilers vectorise the loops.
  for (; i + kTogether <= units.size(); i += kTogether) {
    for (size_t j = i; j < i + kTogether; ++j) lower[j] = static_cast<uint32_t>(units[j]);
    for (size_t j = i; j < i + kTogether; ++j) bits |= units[j];
  }
  for (; i < units.size(); ++i) {
    lower[i] = static_cast<uint32_t>(units[i]);
    bits |= units[i];
  }
  is_wide_[block.value()] = bits >> 32 != 0;
  if (bits >> 32 == 0) return;
  uint32_t* const upper = &upper_[Offset(block)];
  for (size_t at = 0; at < units.size(); ++at) upper[at] = static_cast<uint32_t>(units[at] >> 32);
}

void BlockUnits::Write(std::span<const BlockId> blocks, std::span<const CacheUnit> units) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    WriteBlock(blocks[i], units.subspan(i * block_size_, block_size_));
  }
}

bool BlockUnits::EqualWide(BlockId block, std::span<const CacheUnit> units) const {
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i] != At(block, static_cast<int32_t>(i))) return false;
  }
  return true;
}

bool BlockUnits::Equal(BlockId first, std::span<const CacheUnit> units) const {
  const size_t blocks = units.size() / block_size_;
  if (std::memchr(&is_wide_[first.value()], 1, blocks) == nullptr) {
    return equal_lower(&lower_[Offset(first)], units.data(), units.size());
  }
  for (size_t i = 0; i < blocks; ++i) {
    const BlockId block(first.value() + static_cast<int32_t>(i));
    if (!EqualWide(block, units.subspan(i * block_size_, block_size_))) return false;
  }
  return true;
}

CacheUnit BlockUnits::At(BlockId block, int32_t place) const {
  const size_t at = Offset(block) + place;
  const CacheUnit upper = is_wide_[block.value()] != 0 ? upper_[at] : 0;
  return upper << 32 | lower_[at];
}

void BlockUnits::Read(BlockId block, int32_t place, std::span<CacheUnit> out) const {
  const size_t at = Offset(block) + place;
  if (is_wide_[block.value()] == 0) {
    std::copy_n(&lower_[at], out.size(), out.begin());
  } else {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = CacheUnit{upper_[at + i]} << 32 | lower_[at + i];
  }
}

}  // namespace baton
