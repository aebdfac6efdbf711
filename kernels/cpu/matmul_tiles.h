// How the vector products cut a unit of work: blocks of tokens, then row groups, then tiles of a
// few tokens whose accumulators stay in registers.
//
// Included by matmul_avx2.cc and matmul_avx512.cc, which supply the tiles. Everything has internal
// linkage.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/packed_weights.h"

namespace baton {
namespace {

// A few tokens against one or more row groups; pointers are at the first token and row group.
struct MatMulTile {
  const std::byte* weights;
  int64_t group_bytes;      // of one row group
  int64_t cols;             // of the matrix
  const float* f32;         // [tokens, cols]
  const int8_t* q8;         // [tokens, cols]
  const float* scale;       // [tokens, cols / 32]
  const float* scaled_sum;  // [tokens, cols / 32]
  const int32_t* start;     // [tokens, cols / 32] what each integer sum starts from
  float* out;               // [tokens, out_stride]
  int64_t out_stride;
  int64_t rows;  // to store: 16 per row group, fewer in the last
  bool accumulate;
};

constexpr bool IsFloat(WeightFormat format) {
  return format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
         format == WeightFormat::kBF16;
}

// The same tile from a later row group on.
inline MatMulTile FromRowGroup(MatMulTile at, int64_t row_group) {
  at.weights += row_group * at.group_bytes;
  at.out += row_group * kRowGroup;
  at.rows -= row_group * kRowGroup;
  return at;
}

// Weights are kept unsigned as q + bias, so an integer sum starts from −bias · Σ a.
inline constexpr int64_t kStartCapacity = 8192;  // 32 KiB

// body(0), body(1), …, body(kCount − 1) without a loop, so that arrays indexed by them live in
// registers. The bodies must be always_inline lambdas: compilers stop unrolling such long ones.
template <typename Body, int... kIndex>
[[gnu::always_inline]] inline void Unroll(std::integer_sequence<int, kIndex...>, const Body& body) {
  (body(kIndex), ...);
}
template <int kCount, typename Body>
[[gnu::always_inline]] inline void Unroll(const Body& body) {
  Unroll(std::make_integer_sequence<int, kCount>(), body);
}

inline int64_t SmallerOf(int64_t a, int64_t b) { return a < b ? a : b; }

// Calls tile(count, tokens' arguments) for tokens [begin, end), at most kMost at once and as evenly
// as that allows.
template <int64_t kMost, typename Tile>
inline void ForEachTokenTile(MatMulTile args, int64_t tokens, const Tile& tile) {
  const int64_t groups = args.cols / kQuantGroup;
  for (int64_t tiles = (tokens + kMost - 1) / kMost; tiles > 0; --tiles) {
    const int64_t count = (tokens + tiles - 1) / tiles;
    tile(count, args);
    tokens -= count;
    args.out += count * args.out_stride;
    if (args.f32 != nullptr) args.f32 += count * args.cols;
    if (args.q8 == nullptr) continue;
    args.q8 += count * args.cols;
    args.scale += count * groups;
    if (args.scaled_sum != nullptr) args.scaled_sum += count * groups;
    if (args.start != nullptr) args.start += count * groups;
  }
}

// tile(count, row_groups, args) computes `count` tokens of `row_groups` row groups.
// fill_start(q8, groups, start) fills one token's row of MatMulTile::start; null: none is wanted.
template <int64_t kMostTokens, int64_t kMostRowGroups, typename Tile, typename FillStart>
inline void ForEachTile(const MatMulArgs& args, int64_t row_begin, int64_t row_end,
                        int64_t token_begin, int64_t token_end, bool wants_start,
                        const FillStart& fill_start, const Tile& tile) {
  const int64_t cols = args.weight.cols;
  const int64_t groups = cols / kQuantGroup;
  const int64_t group_bytes = RowGroupBytes(args.weight.format, cols);
  alignas(64) int32_t start[kStartCapacity];
  int64_t block = token_end - token_begin;
  if (wants_start && block * groups > kStartCapacity) {
    block = kStartCapacity / groups / kMostTokens * kMostTokens;
  }
  for (int64_t token = token_begin; token < token_end; token += block) {
    const int64_t tokens = SmallerOf(block, token_end - token);
    for (int64_t t = 0; wants_start && t < tokens; ++t) {
      fill_start(args.x.q8 + (token + t) * cols, groups, start + t * groups);
    }
    // With many tokens, the weights of one row group stay in the first-level cache.
    const int64_t step = tokens < kMostTokens ? kMostRowGroups * kRowGroup : kRowGroup;
    for (int64_t row = row_begin; row < row_end; row += step) {
      MatMulTile at = {};
      at.weights = args.weight.data + row / kRowGroup * group_bytes;
      at.group_bytes = group_bytes;
      at.cols = cols;
      if (args.x.f32 != nullptr) at.f32 = args.x.f32 + token * cols;
      if (args.x.q8 != nullptr) {
        at.q8 = args.x.q8 + token * cols;
        at.scale = args.x.scale + token * groups;
        if (args.x.scaled_sum != nullptr) at.scaled_sum = args.x.scaled_sum + token * groups;
      }
      at.start = wants_start ? start : nullptr;
      at.out = args.out + token * args.out_stride + row;
      at.out_stride = args.out_stride;
      at.rows = SmallerOf(step, row_end - row);
      at.accumulate = args.accumulate;
      const int64_t row_groups = (at.rows + kRowGroup - 1) / kRowGroup;
      ForEachTokenTile<kMostTokens>(at, tokens, [&](int64_t count, const MatMulTile& tokens_at) {
        tile(count, row_groups, tokens_at);
      });
    }
  }
}

}  // namespace
}  // namespace baton
