// Reads and writes KV pools beyond 2^31 elements, for the last tokens of a large batch. The result
// must equal that of the plain kernels near the beginning of their buffers.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/kernels/random_inputs.h"
#include "tests/kernels/sparse_buffer.h"

namespace baton {
namespace {

class FarKv : public InstructionSetTest {
 protected:
  const CpuKernels& kernels() const { return KernelsFor(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(InstructionSets, FarKv, AllInstructionSets(), NameOf);

constexpr int64_t kTokens = 3;  // written by each test
constexpr KvType kKvTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8,
                               KvType::kFp8};
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadDim = 64;
constexpr int32_t kBlockSizeLog2 = 4;

// Returns a view of blocks of 16 slots, `block_stride` elements apart. All values follow all keys.
KvLayerView View(KvType type, int64_t block_stride, int64_t blocks) {
  KvLayerView view{.type = type,
                   .block_size_log2 = kBlockSizeLog2,
                   .block_stride = block_stride,
                   .token_stride = kKvHeads * kHeadDim,
                   .head_stride = kHeadDim,
                   .value_offset = block_stride * blocks,
                   .scale_offset = kKvHeads * kHeadDim};
  if (HasScales(type)) view.token_stride += 4 * kKvHeads;
  return view;
}
constexpr int64_t kNearStride = 16 * (kKvHeads * kHeadDim + 4 * kKvHeads);
constexpr int64_t kFarStride = (int64_t{1} << 28) + 64;
constexpr int64_t kFarBlocks = 13;  // 2^31 elements lie before the ninth

// Memory of a pool, near the beginning of its buffer or far from it.
struct FarPool {
  FarPool(KvType type, int64_t block_stride, int64_t blocks)
      : view(View(type, block_stride, blocks)),
        bytes(2 * block_stride * blocks * static_cast<int64_t>(KvTypeBytes(type))) {
    view.base = bytes.data();
  }
  // Returns the row of K or of V of a slot. For int8, includes the row's scales.
  std::vector<std::byte> Row(int64_t block, int64_t offset, bool value) const {
    const auto size = static_cast<int64_t>(KvTypeBytes(view.type));
    const int64_t at =
        block * view.block_stride + offset * view.token_stride + (value ? view.value_offset : 0);
    return bytes.Get(at * size, view.token_stride * size);
  }

  KvLayerView view;
  Sparse<std::byte> bytes;
};

TEST_P(FarKv, KvOfTheLastTokensIsWrittenToFarBlocks) {
  std::mt19937_64 random(TestSeed());
  constexpr int64_t kRow = kKvHeads * kHeadDim, kFirst = kTwoTo31 / kRow + 1;
  const std::vector<float> k = RandomFloats(random, kTokens * kRow);
  const std::vector<float> v = RandomFloats(random, kTokens * kRow);
  Sparse<float> far_k((kFirst + kTokens) * kRow), far_v((kFirst + kTokens) * kRow);
  Sparse<int64_t> far_slots(kFirst + kTokens);
  ASSERT_TRUE(far_k.ok() && far_v.ok() && far_slots.ok());
  far_k.Put(kFirst * kRow, k);
  far_v.Put(kFirst * kRow, v);
  const std::vector<int64_t> blocks = {0, 1, 2}, far_blocks = {9, 0, 12}, offsets = {3, 15, 0};
  std::vector<int64_t> slots;
  for (size_t i = 0; i < kTokens; ++i) {
    slots.push_back(blocks[i] * 16 + offsets[i]);
    far_slots[kFirst + static_cast<int64_t>(i)] = far_blocks[i] * 16 + offsets[i];
  }
  for (const KvType type : kKvTypes) {
    SCOPED_TRACE(KvTypeName(type));
    FarPool near(type, kNearStride, 3), far(type, kFarStride, kFarBlocks);
    ASSERT_TRUE(near.bytes.ok() && far.bytes.ok());
    PlainKernels().kv_write(
        {k.data(), v.data(), kRow, kKvHeads, kHeadDim, slots.data(), near.view, kTokens}, 0,
        kTokens);
    kernels().kv_write({far_k.data(), far_v.data(), kRow, kKvHeads, kHeadDim, far_slots.data(),
                        far.view, kFirst + kTokens},
                       kFirst, kFirst + kTokens);
    for (size_t i = 0; i < kTokens; ++i) {
      for (const bool value : {false, true}) {
        EXPECT_EQ(near.Row(blocks[i], offsets[i], value), far.Row(far_blocks[i], offsets[i], value))
            << "token " << i << " value " << value;
      }
    }
  }
}

// Runs attention of the last tokens of a batch. They belong to the last of many sequences, whose
// blocks are far.
class Reader {
 public:
  Reader(std::mt19937_64& random, int64_t tokens) : tokens_(tokens) {
    q_ = RandomFloats(random, tokens * kQ);
    k_ = RandomFloats(random, kSlots * kRow);
    v_ = RandomFloats(random, kSlots * kRow);
  }

  // `first` is the number of earlier tokens. `sequence` is the sequence of the tokens that read; it
  // has `blocks`.
  std::vector<AttentionState> Read(const CpuKernels& kernels, FarPool& pool, int64_t first,
                                   int32_t sequence, const std::vector<int32_t>& blocks,
                                   bool contiguous) {
    std::vector<int64_t> slots;
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      slots.push_back(int64_t{blocks[slot / 16]} * 16 + slot % 16);
    }
    PlainKernels().kv_write(
        {k_.data(), v_.data(), kRow, kKvHeads, kHeadDim, slots.data(), pool.view, kSlots}, 0,
        kSlots);
    const int64_t table_stride = sequence == 0 ? 8 : kTwoTo31 / sequence + 8;
    Sparse<float> q((first + tokens_) * kQ);
    Sparse<int32_t> sequences(first + tokens_), first_blocks(sequence + 1);
    Sparse<int32_t> tables((sequence + 1) * table_stride);
    Sparse<RowRuns> rows(first + tokens_);
    EXPECT_TRUE(q.ok() && sequences.ok() && first_blocks.ok() && tables.ok() && rows.ok());
    q.Put(first * kQ, q_);
    first_blocks[sequence] = blocks[0];
    tables.Put(sequence * table_stride, blocks);
    const VisibleRun run;
    for (int64_t t = 0; t < tokens_; ++t) {
      sequences[first + t] = sequence;
      rows[first + t] = {.run_count = 1,
                         .last_begin = 0,
                         .last_end = static_cast<int32_t>(kSlots - tokens_ + 1 + t)};
    }
    PagedAttentionArgs args{.q = q.data(),
                            .q_stride = kQ,
                            .query_heads = kHeadsPerKv * kKvHeads,
                            .kv_heads = kKvHeads,
                            .head_dim = kHeadDim,
                            .softmax_scale = 0.125f,
                            .kv = pool.view,
                            .sequence_of_token = sequences.data(),
                            .runs = &run,
                            .row_runs = rows.data(),
                            .block_tables = contiguous ? nullptr : tables.data(),
                            .table_stride = table_stride,
                            .first_block = first_blocks.data(),
                            .tokens = first + tokens_};
    std::vector<AttentionState> states(tokens_ * kHeadsPerKv * kKvHeads);
    kernels.attention_segment(args, {first, first + tokens_, 0, kKvHeads, 0}, states.data());
    return states;
  }

 private:
  static constexpr int64_t kSlots = 60, kHeadsPerKv = 3;
  static constexpr int64_t kRow = kKvHeads * kHeadDim, kQ = kRow * kHeadsPerKv;
  const int64_t tokens_;
  std::vector<float> q_, k_, v_;
};

TEST_P(FarKv, AttentionOfTheLastTokensOverFarBlocks) {
  std::mt19937_64 random(TestSeed());
  constexpr int32_t kSequence = 1 << 12;
  constexpr int64_t kFirst = kTwoTo31 / (kKvHeads * kHeadDim * 3) + 1;
  for (const KvType type : kKvTypes) {
    for (const int64_t tokens : {1, 6}) {  // 3 and 18 queries: direct, and by tiles
      for (const bool contiguous : {false, true}) {
        SCOPED_TRACE(absl::StrCat(std::string(KvTypeName(type)), " tokens ", tokens, " contiguous ",
                                  contiguous));
        Reader reader(random, tokens);
        FarPool near(type, kNearStride, 4), far(type, kFarStride, kFarBlocks);
        ASSERT_TRUE(near.bytes.ok() && far.bytes.ok());
        const auto expected = reader.Read(PlainKernels(), near, 0, 0, {0, 1, 2, 3}, contiguous);
        const auto actual = reader.Read(
            kernels(), far, kFirst, kSequence,
            contiguous ? std::vector<int32_t>{9, 10, 11, 12} : std::vector<int32_t>{12, 0, 10, 9},
            contiguous);
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_TRUE(expected[i].any_visible && actual[i].any_visible);
          ASSERT_EQ(expected[i].maximum, actual[i].maximum) << i;
          ASSERT_NO_FATAL_FAILURE(
              ExpectSameBits({expected[i].output, expected[i].output + kHeadDim},
                             {actual[i].output, actual[i].output + kHeadDim}, "output"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
