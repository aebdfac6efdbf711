// An attention problem whose queries, table and blocks lie beyond 2^31 elements.
//
// Thread safety: as the standard containers.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "tests/kernels/random_inputs.h"
#include "tests/kernels/sparse_buffer.h"

namespace baton {

// Rows are multiples of 16 bytes in pools without scales, and blocks begin at such multiples.
class FarAttention {
 public:
  FarAttention(KvType type, uint64_t seed)
      : pool_(2 * kBlocks * kBlockStride * KvTypeBytes(type)),
        q_(kTokens * kQueryStride),
        tables_((kSequence + 1) * kTableStride),
        view_{.base = pool_.data(),
              .type = type,
              .block_size_log2 = 4,
              .block_stride = kBlockStride,
              .token_stride = kRow + (HasScales(type) ? 4 * kKvHeads : 0),
              .head_stride = kHeadDim,
              .value_offset = kBlocks * kBlockStride,
              .scale_offset = kRow} {
    if (!ok()) return;
    std::mt19937_64 random(seed);
    const std::vector<int32_t> blocks = {12, 0, 10, 9, 11};
    const std::vector<float> k = RandomFloats(random, kSlots * kRow);
    const std::vector<float> v = RandomFloats(random, kSlots * kRow);
    std::vector<int64_t> slots;
    for (int64_t s = 0; s < kSlots; ++s) slots.push_back(int64_t{blocks[s / 16]} * 16 + s % 16);
    PlainKernels().kv_write(
        {k.data(), v.data(), kRow, kKvHeads, kHeadDim, slots.data(), view_, kSlots}, 0, kSlots);
    for (int64_t t = 0; t < kTokens; ++t) {
      q_.Put(t * kQueryStride, RandomFloats(random, kHeads * kHeadDim));
      rows_.push_back({.run_count = 1, .last_end = static_cast<int32_t>(kSlots - 2 + t)});
    }
    tables_.Put(kSequence * kTableStride, blocks);
  }

  // Returns false if there is not enough address space.
  bool ok() const { return pool_.ok() && q_.ok() && tables_.ok(); }
  // Without a result: `out` is null.
  PagedAttentionArgs Args() const {
    return {.q = q_.data(),
            .q_stride = kQueryStride,
            .query_heads = kHeads,
            .kv_heads = kKvHeads,
            .head_dim = kHeadDim,
            .softmax_scale = 0.125f,
            .kv = view_,
            .sequence_of_token = sequences_.data(),
            .runs = &run_,
            .row_runs = rows_.data(),
            .block_tables = tables_.data(),
            .table_stride = kTableStride,
            .tokens = kTokens};
  }
  static size_t out_size() { return kTokens * kHeads * kHeadDim; }

 private:
  static constexpr int64_t kTokens = 3, kSlots = 70, kKvHeads = 2, kHeadDim = 64, kHeads = 6,
                           kRow = kKvHeads * kHeadDim, kBlocks = 13;
  static constexpr int64_t kQueryStride = int64_t{1} << 30;
  static constexpr int64_t kBlockStride = (int64_t{1} << 28) + 64;
  static constexpr int32_t kSequence = 1 << 12;
  static constexpr int64_t kTableStride = kTwoTo31 / kSequence + 8;

  Sparse<std::byte> pool_;
  Sparse<float> q_;
  Sparse<int32_t> tables_;
  const KvLayerView view_;
  const VisibleRun run_;
  std::vector<RowRuns> rows_;
  const std::vector<int32_t> sequences_ = std::vector<int32_t>(kTokens, kSequence);
};

}  // namespace baton
