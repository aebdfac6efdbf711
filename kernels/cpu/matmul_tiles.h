// Divides a unit of a vector product into tiles.
//
// There are three ways to read weights:
// - In place. Tiles of a few tokens and row groups keep their accumulators in registers. This is
//   for float weights, and for quantised weights times few tokens.
// - From a slab. Quantised weights times more tokens are unpacked once into a slab: one or two row
//   groups, up to 32·kSlabGroups columns. The slab stays in the first-level cache while every tile
//   of tokens is multiplied with it.
// - In place, unpacked again by every tile of tokens, where unpacking is cheap compared with the
//   products (Product::kInPlace).
//
// The files of the matrix products include this header and supply the tiles: a FloatProduct (see
// MultiplyFloats) and a Product (see MultiplyQuantized). Everything has internal linkage.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/unroll.h"

namespace baton {
namespace {

// Multiplies `row_groups` row groups of float weights, as many at once as a tile takes.
template <WeightFormat kFormat, int kTileTokens, typename FloatProduct>
inline void RunFloatTiles(int64_t row_groups, const MatMulTile& at) {
  constexpr int kTileGroups = static_cast<int>(FloatProduct::RowGroups(kTileTokens));
  int64_t r = 0;
  for (; r + kTileGroups <= row_groups; r += kTileGroups) {
    FloatProduct::template Multiply<kFormat, kTileTokens, kTileGroups>(FromRowGroup(at, r));
  }
  if constexpr (kTileGroups > 2) {
    for (; r + 2 <= row_groups; r += 2) {
      FloatProduct::template Multiply<kFormat, kTileTokens, 2>(FromRowGroup(at, r));
    }
  }
  for (; r < row_groups; ++r) {
    FloatProduct::template Multiply<kFormat, kTileTokens, 1>(FromRowGroup(at, r));
  }
}

template <WeightFormat kFormat, typename FloatProduct, int... kTileTokens>
inline void ChooseFloatTiles(std::integer_sequence<int, kTileTokens...>, int64_t tokens,
                             int64_t row_groups, const MatMulTile& at) {
  using Tiles = void (*)(int64_t, const MatMulTile&);
  static constexpr Tiles kByTokens[] = {RunFloatTiles<kFormat, kTileTokens + 1, FloatProduct>...};
  kByTokens[tokens - 1](row_groups, at);
}

// Computes a unit of a product with float weights. FloatProduct::kTokens is the largest number of
// tokens of a tile. RowGroups(tokens) is the number of row groups of a tile. Multiply<format,
// tokens, row groups>(tile) computes a tile.
template <WeightFormat kFormat, typename FloatProduct>
inline void MultiplyFloats(const MatMulArgs& args, int64_t row_begin, int64_t row_end,
                           int64_t token_begin, int64_t token_end) {
  const int64_t step = FloatProduct::RowGroups(token_end - token_begin) * kRowGroup;
  for (int64_t row = row_begin; row < row_end; row += step) {
    const int64_t end = SmallerOf(row + step, row_end);
    const auto multiply = [&](int64_t first, int64_t count) {
      ChooseFloatTiles<kFormat, FloatProduct>(
          std::make_integer_sequence<int, FloatProduct::kTokens>(), count,
          (end - row + kRowGroup - 1) / kRowGroup,
          TileAt(args, token_begin + first, row, end, nullptr));
    };
    ForEachTokenTile<FloatProduct::kTokens>(token_end - token_begin, multiply);
  }
}

inline constexpr int64_t kSlabGroups = 24;     // of 32 columns
inline constexpr int64_t kSlabRegisters = 16;  // at most; 64-byte registers per 32 columns
inline constexpr int64_t kSlabRowGroups = 2;   // at most
inline constexpr int64_t kBlockTokens = 64;    // tokens whose sums are kept with a slab
inline constexpr int64_t kPanelRowGroups = 8;  // row groups whose sums are kept
inline constexpr int64_t kStartCapacity = 16384;

// Unpacked weights of a few row groups. The arrays are [groups, …]; a row group comes before a row.
struct Slab {
  alignas(64) std::byte words[kSlabGroups * kSlabRegisters * 64];
  alignas(64) float factor[kSlabGroups * kSlabRowGroups * kRowGroup];
  alignas(64) float minimum[kSlabGroups * kSlabRowGroups * kRowGroup];
  alignas(64) float half_scales[kSlabGroups * kSlabRowGroups * 2 * kRowGroup];
};

// A few tokens times a slab. Pointers are at the first token and the slab's first group.
struct SlabTile {
  const Slab* slab;
  int64_t groups;           // of the slab
  int64_t row_stride;       // groups of a whole row: distance between the scales of two tokens
  const int8_t* q8;         // [tokens, 32 * row_stride]
  const float* scale;       // [tokens, row_stride]
  const float* scaled_sum;  // [tokens, row_stride]
  const int32_t* start;     // [tokens, row_stride, StartsOf(format)]
  float* acc;               // [tokens, acc_stride], 16 values per row group; the tile adds to them
  int64_t acc_stride;
  // Weights of the next slab, to prefetch: `ahead_bytes` per group of this slab, from each of two
  // places. Null: nothing.
  const std::byte* ahead[kSlabRowGroups];
  int64_t ahead_bytes;
};

inline SlabTile SlabTileAt(const MatMulTile& at, const Slab& slab, int64_t starts,
                           int64_t first_group, int64_t groups, int64_t token, float* acc,
                           int64_t acc_stride) {
  const int64_t row_stride = at.cols / kQuantGroup;
  const int64_t first = token * row_stride + first_group;
  return {.slab = &slab,
          .groups = groups,
          .row_stride = row_stride,
          .q8 = at.q8 + first * kQuantGroup,
          .scale = at.scale + first,
          .scaled_sum = at.scaled_sum == nullptr ? nullptr : at.scaled_sum + first,
          .start = at.start == nullptr ? nullptr : at.start + first * starts,
          .acc = acc + token * acc_stride,
          .acc_stride = acc_stride,
          .ahead = {},
          .ahead_bytes = 0};
}

// Returns the bytes of 32 columns of a row group, with an equal share of the block's headers.
constexpr int64_t GroupBytes(WeightFormat format) {
  return BlockLayoutOf(format).bytes() / BlockLayoutOf(format).groups;
}

// Sums of a panel: [token, row]. A panel has at most kPanelRowGroups row groups.
inline constexpr int64_t kAccStride = kPanelRowGroups * kRowGroup;
struct PanelSums {
  alignas(64) float acc[kBlockTokens * kAccStride];
};

// Sets acc[t] to the product of kRowGroups row groups with token t, for at most kBlockTokens
// tokens. Uses
// - Product::Unpack(weights of the first row group, bytes of one, first group, groups, slab) and
// - Product::MultiplySlab(count, tile).
template <WeightFormat kFormat, int kRowGroups, typename Product>
inline void MultiplySlabs(const MatMulTile& at, int64_t tokens, float* acc) {
  Slab slab;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < kRowGroups * kRowGroup; ++i) acc[t * kAccStride + i] = 0;
  }
  const int64_t row_stride = at.cols / kQuantGroup;
  for (int64_t first = 0; first < row_stride; first += kSlabGroups) {
    const int64_t groups = SmallerOf(kSlabGroups, row_stride - first);
    const int64_t next = first + groups;
    Product::template Unpack<kFormat, kRowGroups>(at.weights, at.group_bytes, first, groups, slab);
    ForEachTokenTile<Product::template kTokens<kFormat>>(tokens, [&](int64_t token, int64_t count) {
      SlabTile tile =
          SlabTileAt(at, slab, StartsOf(kFormat), first, groups, token, acc, kAccStride);
      tile.ahead_bytes = GroupBytes(kFormat);
      for (int r = 0; token == 0 && r < kRowGroups; ++r) {
        tile.ahead[r] = next < row_stride
                            ? at.weights + r * at.group_bytes + next * GroupBytes(kFormat)
                            : at.weights + (kRowGroups + r) * at.group_bytes;
      }
      Product::template MultiplySlab<kFormat, kRowGroups>(count, tile);
    });
  }
}

// Does the same, but in place if Product::kInPlace<format>. That uses
// Product::MultiplyInPlace(count, tile, acc, weights of the next row groups or null).
template <WeightFormat kFormat, int kRowGroups, typename Product>
inline void MultiplyRowGroups(const MatMulTile& at, int64_t tokens, float* acc) {
  if constexpr (Product::template kInPlace<kFormat>) {
    ForEachTokenTile<Product::template kTokens<kFormat>>(tokens, [&](int64_t token, int64_t count) {
      Product::template MultiplyInPlace<kFormat, kRowGroups>(
          count, FromToken(at, token, StartsOf(kFormat)), acc + token * kAccStride,
          token == 0 ? at.weights + kRowGroups * at.group_bytes : nullptr);
    });
  } else {
    MultiplySlabs<kFormat, kRowGroups, Product>(at, tokens, acc);
  }
}

// Sets acc [tokens, kAccStride] to the products of `row_groups` row groups with each token.
template <WeightFormat kFormat, typename Product>
inline void SumRowGroups(const MatMulTile& at, int64_t tokens, int64_t row_groups, float* acc) {
  constexpr int64_t kRowGroups = Product::template kRowGroups<kFormat>;
  int64_t r = 0;
  for (; r + kRowGroups <= row_groups; r += kRowGroups) {
    MultiplyRowGroups<kFormat, kRowGroups, Product>(FromRowGroup(at, r), tokens,
                                                    acc + r * kRowGroup);
  }
  for (; r < row_groups; ++r) {
    MultiplyRowGroups<kFormat, 1, Product>(FromRowGroup(at, r), tokens, acc + r * kRowGroup);
  }
}

// Multiplies at most kPanelRowGroups row groups and stores the results token by token. Outputs of
// two tokens lie far apart, often by a power of two. Storing several lines per token in a row
// avoids conflicts in the first-level cache.
// Uses Product::StoreToken(at, token, row, acc of 16 rows).
template <WeightFormat kFormat, typename Product>
inline void MultiplyPanel(const MatMulTile& at, int64_t tokens, int64_t row_groups) {
  PanelSums sums;
  SumRowGroups<kFormat, Product>(at, tokens, row_groups, sums.acc);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < row_groups; ++r) {
      Product::StoreToken(at, t, r * kRowGroup, sums.acc + t * kAccStride + r * kRowGroup);
    }
  }
}

// Multiplies at most kPanelRowGroups / 2 row groups of the gate and as many of the up projection.
// Their sums are never stored in product.out. `out` points to the first token and row. Uses
// Product::GateToken(gate, up, rows, out).
template <WeightFormat kFormat, typename Product>
inline void MultiplyGatedPanel(const MatMulTile& gate, const MatMulTile& up, int64_t tokens,
                               int64_t rows, int64_t out_cols, const Activations& out) {
  PanelSums sums;
  SumRowGroups<kFormat, Product>(gate, tokens, rows / kRowGroup, sums.acc);
  SumRowGroups<kFormat, Product>(up, tokens, rows / kRowGroup, sums.acc + kAccStride / 2);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* acc = sums.acc + t * kAccStride;
    Product::GateToken(acc, acc + kAccStride / 2, rows, ActivationsAt(out, t, out_cols, 0));
  }
}

// Returns the longest rows that MultiplyQuantized takes.
template <WeightFormat kFormat>
constexpr int64_t MostColumns() {
  return StartsOf(kFormat) == 0 ? INT64_MAX : kStartCapacity / StartsOf(kFormat) * kQuantGroup;
}

// Calls run(first token, count, their starts) for blocks of the tokens [token_begin, token_end).
template <WeightFormat kFormat, typename Product, typename Run>
inline void ForEachTokenBlock(const MatMulArgs& args, int64_t token_begin, int64_t token_end,
                              const Run& run) {
  constexpr int64_t kStarts = StartsOf(kFormat);
  const int64_t groups = args.weight.cols / kQuantGroup;
  alignas(64) int32_t start[kStarts == 0 ? 1 : kStartCapacity];
  int64_t block = kBlockTokens;
  if constexpr (kStarts > 0) block = SmallerOf(block, kStartCapacity / (groups * kStarts));
  for (int64_t token = token_begin; token < token_end; token += block) {
    const int64_t tokens = SmallerOf(block, token_end - token);
    if constexpr (kStarts > 0) {
      for (int64_t t = 0; t < tokens; ++t) {
        Product::template FillStarts<kFormat>(args.x.q8 + (token + t) * args.weight.cols, groups,
                                              start + t * groups * kStarts);
      }
    }
    run(token, tokens, kStarts > 0 ? start : nullptr);
  }
}

// Computes a unit of a quantised product. Product::MultiplyTokens(count, tile) multiplies a few
// tokens with one row group, in place.
template <WeightFormat kFormat, typename Product>
inline void MultiplyQuantized(const MatMulArgs& args, int64_t row_begin, int64_t row_end,
                              int64_t token_begin, int64_t token_end) {
  ForEachTokenBlock<kFormat, Product>(
      args, token_begin, token_end, [&](int64_t token, int64_t tokens, const int32_t* start) {
        const bool few = tokens <= Product::template kFewTokens<kFormat>;
        const int64_t step = (few ? 1 : kPanelRowGroups) * kRowGroup;
        for (int64_t row = row_begin; row < row_end; row += step) {
          const MatMulTile at = TileAt(args, token, row, row_end, start);
          if (few) {
            Product::template MultiplyTokens<kFormat>(tokens, at);
          } else {
            const int64_t rows = SmallerOf(step, row_end - row);
            MultiplyPanel<kFormat, Product>(at, tokens, (rows + kRowGroup - 1) / kRowGroup);
          }
        }
      });
}

// Computes a unit of CpuKernels::gated_matmul.
template <WeightFormat kFormat, typename Product>
inline void MultiplyGated(const MatMulArgs& args, const Activations& out, int64_t row_begin,
                          int64_t row_end, int64_t token_begin, int64_t token_end) {
  const int64_t cols = args.weight.rows / 2;
  ForEachTokenBlock<kFormat, Product>(
      args, token_begin, token_end, [&](int64_t token, int64_t tokens, const int32_t* start) {
        for (int64_t row = row_begin; row < row_end; row += kAccStride / 2) {
          MultiplyGatedPanel<kFormat, Product>(
              TileAt(args, token, row, row_end, start),
              TileAt(args, token, cols + row, args.weight.rows, start), tokens,
              SmallerOf(kAccStride / 2, row_end - row), cols, ActivationsAt(out, token, cols, row));
        }
      });
}

// Calls run(format as an integral constant).
template <typename Run>
inline void RunFormat(WeightFormat format, const Run& run) {
  switch (format) {
    case WeightFormat::kF32:
      return run(std::integral_constant<WeightFormat, WeightFormat::kF32>());
    case WeightFormat::kF16:
      return run(std::integral_constant<WeightFormat, WeightFormat::kF16>());
    case WeightFormat::kBF16:
      return run(std::integral_constant<WeightFormat, WeightFormat::kBF16>());
    case WeightFormat::kQ8_0:
      return run(std::integral_constant<WeightFormat, WeightFormat::kQ8_0>());
    case WeightFormat::kQ4_0:
      return run(std::integral_constant<WeightFormat, WeightFormat::kQ4_0>());
    case WeightFormat::kQ4_1:
      return run(std::integral_constant<WeightFormat, WeightFormat::kQ4_1>());
    case WeightFormat::kQ5_0:
      return run(std::integral_constant<WeightFormat, WeightFormat::kQ5_0>());
    case WeightFormat::kQ5_1:
      return run(std::integral_constant<WeightFormat, WeightFormat::kQ5_1>());
    case WeightFormat::kQ4_K:
      return run(std::integral_constant<WeightFormat, WeightFormat::kQ4_K>());
    case WeightFormat::kQ5_K:
      return run(std::integral_constant<WeightFormat, WeightFormat::kQ5_K>());
    case WeightFormat::kQ6_K:
      return run(std::integral_constant<WeightFormat, WeightFormat::kQ6_K>());
  }
}

// Compute a unit of a product with float weights, and with quantised weights.
template <typename FloatProduct>
inline void MultiplyFloatUnit(const MatMulArgs& args, int64_t row_begin, int64_t row_end,
                              int64_t token_begin, int64_t token_end) {
  RunFormat(args.weight.format, [&](auto format) {
    constexpr WeightFormat kFormat = decltype(format)::value;
    if constexpr (!IsQuantized(kFormat)) {
      MultiplyFloats<kFormat, FloatProduct>(args, row_begin, row_end, token_begin, token_end);
    }
  });
}

template <typename Product>
inline void MultiplyQuantizedUnit(const MatMulArgs& args, int64_t row_begin, int64_t row_end,
                                  int64_t token_begin, int64_t token_end) {
  RunFormat(args.weight.format, [&](auto format) {
    constexpr WeightFormat kFormat = decltype(format)::value;
    if constexpr (IsQuantized(kFormat)) {
      if (args.weight.cols > MostColumns<kFormat>()) {
        plain::MatMul(args, row_begin, row_end, token_begin, token_end);
      } else {
        MultiplyQuantized<kFormat, Product>(args, row_begin, row_end, token_begin, token_end);
      }
    }
  });
}

template <typename Product>
inline void MultiplyGatedUnit(const MatMulArgs& args, const Activations& out, int64_t row_begin,
                              int64_t row_end, int64_t token_begin, int64_t token_end) {
  RunFormat(args.weight.format, [&](auto format) {
    constexpr WeightFormat kFormat = decltype(format)::value;
    if constexpr (IsQuantized(kFormat)) {
      if (args.weight.cols <= MostColumns<kFormat>()) {
        MultiplyGated<kFormat, Product>(args, out, row_begin, row_end, token_begin, token_end);
        return;
      }
    }
    plain::GatedMatMul(args, out, row_begin, row_end, token_begin, token_end);
  });
}

}  // namespace
}  // namespace baton
