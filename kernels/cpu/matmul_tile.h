// Describes how a weight format is summed, and the addresses of a product's tile: a few tokens
// times one or more row groups.
//
// The vector kernels of matrix products use this header. Everything has internal linkage.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/packed_weights.h"

namespace baton {
namespace {

// How to sum a group of 32 columns.
enum class SumKind {
  kMinimum,  // unbiased weights; the minimum is added after the sum
  kBiased,   // weights are stored as q + bias, so a sum starts from −bias · Σ a
  kHalves,   // biased, sixteen columns at a time; each half has an integer scale
};
constexpr SumKind SumKindOf(WeightFormat format) {
  if (format == WeightFormat::kQ6_K) return SumKind::kHalves;
  return HasMinimum(format) ? SumKind::kMinimum : SumKind::kBiased;
}
// Returns the bias: the products' unsigned weights less q. All formats but Q8_0 are stored
// unsigned. Q8_0's weights are converted.
constexpr int BiasOf(WeightFormat format) {
  return format == WeightFormat::kQ8_0 ? 128 : ZeroPointOf(format);
}
// Returns the number of sums per group that start from a bias.
constexpr int64_t StartsOf(WeightFormat format) {
  if (BiasOf(format) == 0) return 0;
  return SumKindOf(format) == SumKind::kHalves ? 2 : 1;
}

// Formats with equal kinds share the code of their tiles.
struct ProductKind {
  SumKind sums;
  int planes;  // registers per word; each holds some bits of the weights
  int run;     // words whose products are added in 16 bits
};
// Returns the number of sums that a group of 32 columns has.
constexpr int PartsOf(ProductKind kind) { return kind.sums == SumKind::kHalves ? 2 : 1; }
// Returns the address of a start, or null for kinds that have none.
template <ProductKind kKind>
inline const int32_t* StartAt(const int32_t* starts, int64_t index) {
  return kKind.sums == SumKind::kMinimum ? nullptr : starts + index;
}

// VPMADDUBSW multiplies unsigned weights with signed activations and adds two products in an int16
// that saturates. The next functions tell how far its results can be added without loss.
//
// Eight-bit weights are split into two planes of four bits.
constexpr int PlanesOf(WeightFormat format) { return format == WeightFormat::kQ8_0 ? 2 : 1; }
// Returns the largest q + bias, or the largest four bits of it if there are two planes.
constexpr int LargestWeightOf(WeightFormat format) {
  if (BlockLayoutOf(format).words == 6) return 63;
  return BlockLayoutOf(format).words == 5 ? 31 : 15;
}
// Returns how many results of VPMADDUBSW an int16 can add up, but at most the eight words of a
// group. The magnitude of an activation is at most 128, so a sum is at most 8 · 2 · 128 · 15 =
// 30720, 4 · 2 · 128 · 31 = 31744 or 2 · 2 · 128 · 63 = 32256.
constexpr int RunOf(WeightFormat format) {
  const int most = 32767 / (2 * 128 * LargestWeightOf(format));
  return most < 8 ? most : 8;
}

inline int64_t SmallerOf(int64_t a, int64_t b) { return a < b ? a : b; }

// A few tokens times one or more row groups. Pointers are at the first token and row group.
struct MatMulTile {
  const std::byte* weights;
  int64_t group_bytes;      // of one row group
  int64_t cols;             // of the matrix
  const float* f32;         // [tokens, cols]
  const int8_t* q8;         // [tokens, cols]
  const float* scale;       // [tokens, cols / 32]
  const float* scaled_sum;  // [tokens, cols / 32]
  const int32_t* start;     // [tokens, cols / 32, StartsOf(format)]
  float* out;               // [tokens, out_stride]
  int64_t out_stride;
  int64_t rows;  // rows to store: 16 per row group, perhaps fewer in the last
  bool accumulate;
};

inline MatMulTile TileAt(const MatMulArgs& args, int64_t token, int64_t row, int64_t row_end,
                         const int32_t* start) {
  MatMulTile at = {};
  const int64_t cols = args.weight.cols;
  at.group_bytes = RowGroupBytes(args.weight.format, cols);
  at.weights = args.weight.data + row / kRowGroup * at.group_bytes;
  at.cols = cols;
  if (args.x.f32 != nullptr) at.f32 = args.x.f32 + token * cols;
  if (args.x.q8 != nullptr) {
    at.q8 = args.x.q8 + token * cols;
    at.scale = args.x.scale + token * (cols / kQuantGroup);
    if (args.x.scaled_sum != nullptr) {
      at.scaled_sum = args.x.scaled_sum + token * (cols / kQuantGroup);
    }
  }
  at.start = start;
  at.out = args.out + token * args.out_stride + row;
  at.out_stride = args.out_stride;
  at.rows = row_end - row;
  at.accumulate = args.accumulate;
  return at;
}

// Returns the same tile from a later row group on.
inline MatMulTile FromRowGroup(MatMulTile at, int64_t row_group) {
  at.weights += row_group * at.group_bytes;
  at.out += row_group * kRowGroup;
  at.rows -= row_group * kRowGroup;
  return at;
}

// Returns the same tile from a later token on. `starts` is StartsOf(format). REQUIRES: the format
// is quantised.
inline MatMulTile FromToken(MatMulTile at, int64_t token, int64_t starts) {
  const int64_t groups = at.cols / kQuantGroup;
  at.q8 += token * at.cols;
  at.scale += token * groups;
  if (at.scaled_sum != nullptr) at.scaled_sum += token * groups;
  if (at.start != nullptr) at.start += token * groups * starts;
  at.out += token * at.out_stride;
  return at;
}

// Calls tile(first, count) for parts of [0, tokens). Parts have at most kMost tokens and are as
// even as possible.
template <int64_t kMost, typename Tile>
[[gnu::always_inline]] inline void ForEachTokenTile(int64_t tokens, const Tile& tile) {
  int64_t first = 0;
  for (int64_t tiles = (tokens + kMost - 1) / kMost; tiles > 0; --tiles) {
    const int64_t count = (tokens - first + tiles - 1) / tiles;
    tile(first, count);
    first += count;
  }
}

}  // namespace
}  // namespace baton
