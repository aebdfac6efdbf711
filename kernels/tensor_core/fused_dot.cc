#include "kernels/tensor_core/fused_dot.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton {
namespace {

constexpr int kMostTerms = 16;
constexpr int kNoExponent = std::numeric_limits<int>::min();

struct HalfFormat {
  int mantissa_bits;
  int exponent_bits;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int largest_field() const { return (1 << exponent_bits) - 1; }
};
constexpr HalfFormat FormatOf(HalfType type) {
  return type == HalfType::kBF16 ? HalfFormat{7, 8} : HalfFormat{10, 5};
}

// The number significand · 2^(exponent − point), where the caller knows `point`.
struct FixedPoint {
  int64_t significand;
  int exponent;
};

// REQUIRES: `bits` is finite. The result's point is mantissa_bits.
FixedPoint DecodeHalf(const HalfFormat& format, uint16_t bits) {
  const int field = bits >> format.mantissa_bits & format.largest_field();
  int64_t significand = bits & ((1 << format.mantissa_bits) - 1);
  if (field != 0) significand |= int64_t{1} << format.mantissa_bits;
  return {(bits & 0x8000) != 0 ? -significand : significand, std::max(field, 1) - format.bias()};
}

constexpr int kFloatPoint = 23;

// REQUIRES: `x` is finite. The result's point is kFloatPoint.
FixedPoint DecodeFloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int field = static_cast<int>(bits >> 23 & 255);
  int64_t significand = bits & 0x7fffff;
  if (field != 0) significand |= 0x800000;
  return {bits >> 31 != 0 ? -significand : significand, std::max(field, 1) - 127};
}

// Returns the term in units of 2^(largest − fraction_bits), cut off towards zero.
int64_t Align(const FixedPoint& term, int point, int fraction_bits, int largest) {
  if (term.significand == 0) return 0;  // its exponent may be far above `largest`
  const int shift = fraction_bits - point - (largest - term.exponent);
  if (shift >= 0) return term.significand * (int64_t{1} << shift);
  return shift <= -63 ? 0 : term.significand / (int64_t{1} << -shift);
}

// Returns sum · 2^unit, cut off towards zero. Zero is +0. Always inline: a call from AVX2 code
// costs more than the work.
[[gnu::always_inline]] inline float TruncateToFloat(int64_t sum, int unit) {
  if (sum == 0) return 0.0f;
  const uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  const int top = 63 - std::countl_zero(magnitude);
  if (top + unit > 127) return std::bit_cast<float>(sign | 0x7f800000u);
  const int smallest = std::max(top + unit - 23, -149);  // exponent of the result's last bit
  const int shift = smallest - unit;
  if (shift > 63) return 0.0f;
  const uint64_t kept = shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (kept == 0) return 0.0f;
  const uint32_t field = kept >> 23 != 0 ? static_cast<uint32_t>(smallest + 150) : 0;
  return std::bit_cast<float>(sign | field << 23 | (static_cast<uint32_t>(kept) & 0x7fffffu));
}

float WidenHalf(HalfType type, uint16_t bits) {
  return type == HalfType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

// Rule 5. REQUIRES: an operand is infinite or NaN.
[[gnu::noinline, gnu::cold]] float SumOfSpecials(HalfType type, const uint16_t* a,
                                                 const uint16_t* b, int count, float c) {
  double sum = c;  // finite products cannot overflow it
  for (int i = 0; i < count; ++i) {
    sum += static_cast<double>(WidenHalf(type, a[i])) * static_cast<double>(WidenHalf(type, b[i]));
  }
  return std::isnan(sum) ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(sum);
}

float PlainStep(HalfType type, int fraction_bits, const uint16_t* a, const uint16_t* b, int count,
                float c) {
  const HalfFormat format = FormatOf(type);
  const uint16_t special = static_cast<uint16_t>(format.largest_field() << format.mantissa_bits);
  bool any_special = !std::isfinite(c);
  for (int i = 0; i < count; ++i) {
    any_special |= (a[i] & special) == special || (b[i] & special) == special;
  }
  if (any_special) return SumOfSpecials(type, a, b, count, c);

  FixedPoint products[kMostTerms];
  int largest = kNoExponent;
  for (int i = 0; i < count; ++i) {
    const FixedPoint x = DecodeHalf(format, a[i]);
    const FixedPoint y = DecodeHalf(format, b[i]);
    products[i] = {x.significand * y.significand, x.exponent + y.exponent};
    if (products[i].significand != 0) largest = std::max(largest, products[i].exponent);
  }
  const FixedPoint start = DecodeFloat(c);
  if (start.significand != 0) largest = std::max(largest, start.exponent);
  if (largest == kNoExponent) return 0.0f;

  int64_t sum = Align(start, kFloatPoint, fraction_bits, largest);
  for (int i = 0; i < count; ++i) {
    sum += Align(products[i], 2 * format.mantissa_bits, fraction_bits, largest);
  }
  return TruncateToFloat(sum, largest - fraction_bits);
}

#if defined(__x86_64__)
// Loads the operands of a step. Eight are filled up with zeros, which take no part in a sum.
template <int kStep>
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i LoadStep(const uint16_t* from) {
  static_assert(kStep == 8 || kStep == kMostTerms);
  if constexpr (kStep == kMostTerms) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  } else {
    return _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
}

// One step of a model with at most 25 fraction bits: sixteen 16-bit lanes.
template <DotModel kModel, HalfType kType>
[[gnu::target("avx2"), gnu::always_inline]] inline float FastStep(const uint16_t* a,
                                                                  const uint16_t* b, float c) {
  constexpr HalfFormat kFormat = FormatOf(kType);
  constexpr int kFraction = kModel.fraction_bits;
  constexpr int kPoint = 2 * kFormat.mantissa_bits;
  static_assert(kFraction >= kFloatPoint && kFraction <= 25);
  const __m256i x = LoadStep<kModel.step>(a);
  const __m256i y = LoadStep<kModel.step>(b);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i one = _mm256_set1_epi16(1);
  const __m256i all_ones = _mm256_set1_epi16(kFormat.largest_field());
  const __m256i field_x = _mm256_and_si256(_mm256_srli_epi16(x, kFormat.mantissa_bits), all_ones);
  const __m256i field_y = _mm256_and_si256(_mm256_srli_epi16(y, kFormat.mantissa_bits), all_ones);
  const __m256i special =
      _mm256_or_si256(_mm256_cmpeq_epi16(field_x, all_ones), _mm256_cmpeq_epi16(field_y, all_ones));
  const uint32_t c_bits = std::bit_cast<uint32_t>(c);
  const int c_field = static_cast<int>(c_bits >> 23 & 255);
  if (!_mm256_testz_si256(special, special) || c_field == 255) {
    return SumOfSpecials(kType, a, b, kModel.step, c);
  }

  // Significands with their leading bit, which a subnormal number lacks.
  const __m256i mantissa = _mm256_set1_epi16((1 << kFormat.mantissa_bits) - 1);
  const __m256i leading = _mm256_set1_epi16(1 << kFormat.mantissa_bits);
  const __m256i significand_x =
      _mm256_or_si256(_mm256_and_si256(x, mantissa),
                      _mm256_andnot_si256(_mm256_cmpeq_epi16(field_x, zero), leading));
  const __m256i significand_y =
      _mm256_or_si256(_mm256_and_si256(y, mantissa),
                      _mm256_andnot_si256(_mm256_cmpeq_epi16(field_y, zero), leading));
  const __m256i zero_product = _mm256_or_si256(_mm256_cmpeq_epi16(significand_x, zero),
                                               _mm256_cmpeq_epi16(significand_y, zero));
  // Exponents have twice the type's bias here. That of a zero product is 0, below all others.
  const __m256i exponent = _mm256_andnot_si256(
      zero_product,
      _mm256_add_epi16(_mm256_max_epi16(field_x, one), _mm256_max_epi16(field_y, one)));
  const __m128i halves =
      _mm_max_epi16(_mm256_castsi256_si128(exponent), _mm256_extracti128_si256(exponent, 1));
  const __m128i complement = _mm_xor_si128(halves, _mm_set1_epi16(-1));
  int largest = 0xffff & ~_mm_extract_epi16(_mm_minpos_epu16(complement), 0);
  if (largest == 0) return c == 0 ? 0.0f : c;
  const int c_exponent = std::max(c_field, 1) - 127 + 2 * kFormat.bias();
  int64_t c_significand = c_bits & 0x7fffff;
  if (c_field != 0) c_significand |= 0x800000;
  if (c_significand != 0) largest = std::max(largest, c_exponent);

  // Terms, in 32 bits: below 2^27 each, so that sixteen stay below 2^31. A shift by 32 or more
  // gives 0. Both `unpack` instructions order the lanes in the same way for all operands.
  const __m256i shift =
      _mm256_sub_epi16(_mm256_set1_epi16(static_cast<int16_t>(largest)), exponent);
  const __m256i sign = _mm256_srai_epi16(_mm256_xor_si256(x, y), 15);
  const __m256i low = _mm256_mullo_epi16(significand_x, significand_y);
  const __m256i high = kPoint == 14 ? zero : _mm256_mulhi_epu16(significand_x, significand_y);
  const __m256i terms_0 =
      _mm256_srlv_epi32(_mm256_slli_epi32(_mm256_unpacklo_epi16(low, high), kFraction - kPoint),
                        _mm256_unpacklo_epi16(shift, zero));
  const __m256i terms_1 =
      _mm256_srlv_epi32(_mm256_slli_epi32(_mm256_unpackhi_epi16(low, high), kFraction - kPoint),
                        _mm256_unpackhi_epi16(shift, zero));
  const __m256i sign_0 = _mm256_unpacklo_epi16(sign, sign);
  const __m256i sign_1 = _mm256_unpackhi_epi16(sign, sign);
  const __m256i both =
      _mm256_add_epi32(_mm256_sub_epi32(_mm256_xor_si256(terms_0, sign_0), sign_0),
                       _mm256_sub_epi32(_mm256_xor_si256(terms_1, sign_1), sign_1));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));

  const int c_shift = largest - c_exponent;
  const int64_t c_term = c_shift > 62 ? 0 : (c_significand << (kFraction - kFloatPoint)) >> c_shift;
  const int64_t sum = _mm_cvtsi128_si32(four) + (c_bits >> 31 != 0 ? -c_term : c_term);
  return TruncateToFloat(sum, largest - 2 * kFormat.bias() - kFraction);
}

template <DotModel kModel, HalfType kType>
[[gnu::target("avx2")]] float FastChain(const uint16_t* a, const uint16_t* b, int64_t count,
                                        float c) {
  constexpr int kStep = kModel.step;
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) c = FastStep<kModel, kType>(a + i, b + i, c);
  if (i == count) return c;
  uint16_t last_a[kStep] = {};
  uint16_t last_b[kStep] = {};
  std::memcpy(last_a, a + i, static_cast<size_t>(count - i) * sizeof(uint16_t));
  std::memcpy(last_b, b + i, static_cast<size_t>(count - i) * sizeof(uint16_t));
  return FastStep<kModel, kType>(last_a, last_b, c);
}

template <DotModel kModel>
float FastDot(HalfType type, const uint16_t* a, const uint16_t* b, int64_t count, float c) {
  return type == HalfType::kBF16 ? FastChain<kModel, HalfType::kBF16>(a, b, count, c)
                                 : FastChain<kModel, HalfType::kF16>(a, b, count, c);
}

bool HasAvx2() { return __builtin_cpu_supports("avx2") != 0; }
#endif

}  // namespace

float PlainFusedDot(const DotModel& model, HalfType type, const uint16_t* a, const uint16_t* b,
                    int64_t count, float c) {
  for (int64_t i = 0; i < count; i += model.step) {
    const int terms = static_cast<int>(std::min<int64_t>(model.step, count - i));
    c = PlainStep(type, model.fraction_bits, a + i, b + i, terms, c);
  }
  return c;
}

float FusedDot(const DotModel& model, HalfType type, const uint16_t* a, const uint16_t* b,
               int64_t count, float c) {
#if defined(__x86_64__)
  if (model == kHopperDot && HasAvx2()) return FastDot<kHopperDot>(type, a, b, count, c);
  if (model == kAmpereDot && HasAvx2()) return FastDot<kAmpereDot>(type, a, b, count, c);
#endif
  return PlainFusedDot(model, type, a, b, count, c);
}

}  // namespace baton
