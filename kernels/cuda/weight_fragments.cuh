// Reads packed weights (weight_layout.h) as fragments of m16n8k32 integer products, and their
// scales as the terms of NUMERICS §4.
//
// A warp takes a piece: 16 rows and 128 columns, which are two pairs of groups. Every lane loads
// its words of a pair, 16 bytes at a time. Neighbouring lanes load neighbouring bytes. Unpacking
// four weights takes two or three integer instructions. For each row and pair of groups, one lane
// computes the scales. They go through shared memory to the lanes whose sums they scale.
//
// Signed q of fewer than eight bits stay in the upper bits of their byte. So an integer sum is too
// large by the factor 2^FragmentShift. The sum starts as the bits of a float constant (SumBits):
// 1.5 · 2^23 divided by this factor. After the product, its bits are those of the float constant +
// sum, because the sum is below 2^22. A subtraction gives the exact sum, in half the time of a
// conversion.
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/matmul_shape.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/weight_layout.h"
#include "kernels/rounded_arithmetic.h"

namespace baton {

// Start of an integer sum.
template <WeightFormat kFormat>
inline constexpr int kSumBits = 0x4b400000 - (FragmentShift(kFormat) << 23);

// Returns the sum as a float. It is exact.
template <WeightFormat kFormat>
__device__ __forceinline__ float SumAsFloat(int sum) {
  constexpr float kStart = 12582912.0f / (1 << FragmentShift(kFormat));
  return __fsub_rn(BitCast<float>(sum), kStart);
}

// Position of a group and row in a term. A row's groups are neighbours, so that one load gets them.
__device__ __forceinline__ int TermAt(int group, int row) { return kPieceGroups * row + group; }

// Joins Q6_K's sums of the first and the last sixteen columns of a group, exactly. `terms` are the
// group's terms of the row.
__device__ __forceinline__ float JoinHalves(const float* terms, int first, int last) {
  return __fmaf_rn(terms[2 * kTermFloats], SumAsFloat<WeightFormat::kQ6_K>(last),
                   __fmul_rn(terms[kTermFloats], SumAsFloat<WeightFormat::kQ6_K>(first)));
}

// How to read weights: from device memory that no kernel writes, or from shared memory.
struct LoadGlobal {
  template <typename T>
  __device__ __forceinline__ T operator()(const T* from) const {
    return __ldg(from);
  }
};
struct LoadShared {
  template <typename T>
  __device__ __forceinline__ T operator()(const T* from) const {
    return *from;
  }
};

// A lane's words of a pair of groups.
template <WeightFormat kFormat>
struct PairWords {
  static constexpr int kLowWords = WeightLayoutOf(kFormat).low_words / 2;
  static constexpr int kHighWords = WeightLayoutOf(kFormat).high_words / 2;

  unsigned low[kLowWords];
  unsigned high[kHighWords > 0 ? kHighWords : 1];
};

// Loads the words of a pair. `low` and `high` are the addresses of its parts (weight_layout.h).
template <WeightFormat kFormat, typename Load>
__device__ __forceinline__ void LoadPair(const Load& load, const uint8_t* low, const uint8_t* high,
                                         int lane, PairWords<kFormat>& words) {
  using Words = PairWords<kFormat>;
#pragma unroll
  for (int i = 0; i < Words::kLowWords / 4; ++i) {
    const uint4 four = load(reinterpret_cast<const uint4*>(low + 512 * i + 16 * lane));
    words.low[4 * i] = four.x;
    words.low[4 * i + 1] = four.y;
    words.low[4 * i + 2] = four.z;
    words.low[4 * i + 3] = four.w;
  }
  if constexpr (Words::kHighWords == 1) {
    words.high[0] = load(reinterpret_cast<const unsigned*>(high + 4 * lane));
  } else if constexpr (Words::kHighWords == 2) {
    const uint2 two = load(reinterpret_cast<const uint2*>(high + 8 * lane));
    words.high[0] = two.x;
    words.high[1] = two.y;
  }
}

// Loads the header words of a row's pair of groups. `header` is the address of the block's headers,
// `pair` counts in the block.
template <WeightFormat kFormat, typename Load>
__device__ __forceinline__ void LoadHeader(const Load& load, const uint8_t* header, int pair,
                                           int row, unsigned (&words)[3]) {
  if constexpr (kFormat == WeightFormat::kQ6_K) {
    words[0] = load(reinterpret_cast<const uint16_t*>(header + 256 + 2 * row));
    words[1] = load(reinterpret_cast<const unsigned*>(header + 64 * pair + 4 * row));
  } else if constexpr (WeightLayoutOf(kFormat).pieces == 2) {
    words[0] = load(reinterpret_cast<const unsigned*>(header + 4 * row));
    words[1] = load(reinterpret_cast<const uint16_t*>(header + 64 + 32 * pair + 2 * row));
    words[2] = load(header + 192 + 16 * pair + row);
  } else {
    words[0] = load(reinterpret_cast<const unsigned*>(header + 64 * pair + 4 * row));
    if constexpr (HasMinimumTerm(kFormat)) {
      words[1] = load(reinterpret_cast<const unsigned*>(header + 128 + 64 * pair + 4 * row));
    }
  }
}

// Returns the low or high 16 bits of a word, which are an f16.
__device__ __forceinline__ float HalfOf(unsigned word, int which) {
  return WidenF16(static_cast<uint16_t>(which == 0 ? word & 0xffffu : word >> 16));
}

// Computes the terms of the first (0) or second group of a pair.
template <WeightFormat kFormat>
__device__ __forceinline__ void GroupTerms(const unsigned (&header)[3], int which,
                                           float (&terms)[WeightTerms(kFormat)]) {
  if constexpr (kFormat == WeightFormat::kQ6_K) {
    terms[0] = HalfOf(header[0], 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned byte = header[1] >> (16 * which + 8 * half) & 0xffu;
      terms[1 + half] = static_cast<float>(static_cast<int8_t>(byte));
    }
  } else if constexpr (WeightLayoutOf(kFormat).pieces == 2) {
    const unsigned word = header[1];
    const unsigned byte = header[2];
    const unsigned scale = which == 0 ? word & 63 : word >> 12 | (byte & 3) << 4;
    const unsigned minimum = which == 0 ? word >> 6 & 63 : byte >> 2;
    // Exact: 11 + 6 bits.
    terms[0] = __fmul_rn(HalfOf(header[0], 0), static_cast<float>(static_cast<int>(scale)));
    terms[1] = __fmul_rn(-HalfOf(header[0], 1), static_cast<float>(static_cast<int>(minimum)));
  } else {
    terms[0] = HalfOf(header[0], which);
    if constexpr (HasMinimumTerm(kFormat)) terms[1] = HalfOf(header[1], which);
  }
}

// The row and the pair of groups of a piece whose terms a lane computes.
__device__ __forceinline__ int TermRow(int lane) { return lane / 2; }
__device__ __forceinline__ int TermPair(int lane) { return lane % 2; }

// Writes the terms of the piece to `to` [WeightTerms, kTermFloats] in shared memory. `header` is
// that of TermRow and TermPair.
template <WeightFormat kFormat>
__device__ __forceinline__ void WriteTerms(const unsigned (&header)[3], int lane, float* to) {
  constexpr int kTerms = WeightTerms(kFormat);
  float first[kTerms];
  float second[kTerms];
  GroupTerms<kFormat>(header, 0, first);
  GroupTerms<kFormat>(header, 1, second);
  const int at = TermAt(2 * TermPair(lane), TermRow(lane));
#pragma unroll
  for (int k = 0; k < kTerms; ++k) {
    *reinterpret_cast<float2*>(to + k * kTermFloats + at) = float2{first[k], second[k]};
  }
}

// Unpacks fragment word f (0…3) of the first (0) or second group of a pair, from its low word and
// its high word. Not for Q8_0, whose low words are the fragments.
template <WeightFormat kFormat>
__device__ __forceinline__ unsigned FragmentWord(unsigned low, unsigned high, int which, int f) {
  constexpr int kHighWords = PairWords<kFormat>::kHighWords;
  constexpr int kShift = FragmentShift(kFormat);
  const int left = kShift - 4 * (f / 2);  // q moves to bit kShift
  unsigned word = (left >= 0 ? low << left : low >> -left) & 0x0f0f0f0fu << kShift;
  if constexpr (kHighWords > 0) {
    const int from = kHighWords == 1 ? 4 * which + f : 2 * f;
    const int by = kShift + 4 - from;
    const unsigned placed = by >= 0 ? high << by : high >> -by;
    word |= placed & (kHighWords == 1 ? 0x10101010u : 0x30303030u) << kShift;
  }
  return word;
}

// Unpacks the fragment of the first (0) or second group of a pair: a[0] row r, columns 8t…; a[1]
// row r + 8; a[2] row r, columns 8t+4…; a[3] row r + 8. REQUIRES: `which` is a constant after
// unrolling.
template <WeightFormat kFormat>
__device__ __forceinline__ void UnpackFragment(const PairWords<kFormat>& words, int which,
                                               unsigned (&a)[4]) {
#pragma unroll
  for (int f = 0; f < 4; ++f) {
    if constexpr (kFormat == WeightFormat::kQ8_0) {
      a[f] = words.low[4 * which + f];
    } else {
      const unsigned high = words.high[PairWords<kFormat>::kHighWords == 2 ? which : 0];
      a[f] = FragmentWord<kFormat>(words.low[2 * which + f % 2], high, which, f);
    }
  }
}

}  // namespace baton
