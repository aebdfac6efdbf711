#include "kernels/cpu/paged_attention.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/attention_case.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7006;

std::vector<float> Attend(const AttentionCase& problem, int threads) {
  std::vector<float> out(problem.out_size(), -1.0f);
  ThreadPool pool(threads);
  AttentionScratch scratch;
  for (int round = 0; round < 2; ++round) {  // the second time with used scratch
    RunPagedAttention(PlainKernels(), pool, scratch, problem.Args(out.data()));
  }
  return out;
}

// What a batch can look like, beside each other: a chunk, single tokens, windows, several runs,
// padding, lengths around the borders of tiles and segments.
std::vector<AttentionSequence> MixedBatch() {
  std::vector<AttentionSequence> batch;
  batch.push_back(CausalSequence(40, 37));
  for (const int32_t slots : {1, 63, 64, 65, 255, 256, 257, 700}) {
    batch.push_back(CausalSequence(slots, 1));
  }
  batch.push_back(CausalSequence(300, 9, 20));
  batch.push_back({.slots = 600, .tokens = {{{0, 4}, {500, 590}}, {{0, 4}, {513, 600}}, {}}});
  // Runs in any order, from tiles of their own, some shifted, one empty.
  batch.push_back({.slots = 700,
                   .tokens = {{{300, 650, 290, 7}, {0, 300}, {660, 660, 650}, {650, 680, 650}},
                              {{300, 650, 290, 7}, {0, 300}, {660, 660, 650}, {650, 681, 650}},
                              {{300, 650, 290, -3}, {650, 682, 650, 7}},
                              {{650, 683, 600, 7}}}});
  batch.push_back({.slots = 5, .tokens = {{}, {}}});
  return batch;
}

TEST(PagedAttention, EveryBlockSizeLayoutAndThreadCountIsTheLiteralTranscription) {
  const std::vector<AttentionSequence> batch = MixedBatch();
  for (int log2 = 0; log2 <= 7; ++log2) {
    for (const bool layer_major : {false, true}) {
      for (const bool contiguous : {false, true}) {
        SCOPED_TRACE(testing::Message() << "block size 2^" << log2 << " layer major " << layer_major
                                        << " contiguous " << contiguous << " seed " << kSeed);
        const AttentionShape shape{
            .block_size_log2 = log2, .layer_major = layer_major, .contiguous = contiguous};
        const AttentionCase problem(shape, batch, kSeed);
        const int threads = 1 + (log2 + layer_major + 2 * contiguous) % 4;
        ASSERT_EQ(Attend(problem, threads), problem.Expected()) << threads << " threads";
      }
    }
  }
}

// Alone, a sequence is split by segments; between others, it is walked: the same bits.
TEST(PagedAttention, SplitAndWalkedSequencesAreEqualAtSegmentBorders) {
  for (const int32_t slots : {255, 256, 257, 511, 512, 513, 1500}) {
    SCOPED_TRACE(testing::Message() << slots << " slots, seed " << kSeed);
    const AttentionCase problem({.type = KvType::kBF16}, {CausalSequence(slots, 1)}, kSeed);
    const std::vector<float> expected = problem.Expected();
    for (const int threads : {1, 2, 3, 4}) ASSERT_EQ(Attend(problem, threads), expected) << threads;
  }
}

TEST(PagedAttention, GroupedAndSingleHeadsOfEveryKind) {
  for (const auto& [query_heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 4}, {9, 3}, {8, 1}, {80, 1}}) {
    SCOPED_TRACE(testing::Message() << query_heads << " over " << kv_heads << " seed " << kSeed);
    const AttentionShape shape{.query_heads = query_heads, .kv_heads = kv_heads, .head_dim = 8};
    const AttentionCase problem(shape, {CausalSequence(270, 20), CausalSequence(300, 1)}, kSeed);
    const std::vector<float> expected = problem.Expected();
    for (const int threads : {1, 2, 4}) ASSERT_EQ(Attend(problem, threads), expected) << threads;
  }
}

// More states than one round of split attention holds.
TEST(PagedAttention, Int8PoolsOfEveryBlockSizeAreTheLiteralTranscription) {
  for (int log2 = 0; log2 <= 7; ++log2) {
    SCOPED_TRACE(testing::Message() << "block size 2^" << log2 << " seed " << kSeed);
    const AttentionShape shape{
        .type = KvType::kInt8, .block_size_log2 = log2, .layer_major = log2 % 2 == 0};
    const AttentionCase problem(shape, MixedBatch(), kSeed);
    ASSERT_EQ(Attend(problem, 1 + log2 % 3), problem.Expected());
  }
}

TEST(PagedAttention, SplitAttentionInSeveralRounds) {
  const AttentionShape shape{.query_heads = 64, .kv_heads = 1, .head_dim = 2, .type = KvType::kF32};
  std::vector<AttentionSequence> batch = {CausalSequence(256 * 140, 1), CausalSequence(300, 2)};
  const AttentionCase problem(shape, batch, kSeed);
  EXPECT_EQ(Attend(problem, 4), Attend(problem, 1)) << "seed " << kSeed;
}

TEST(PagedAttention, NoTokensAndOnlyPaddingAreFine) {
  const AttentionCase none({}, {}, kSeed);
  EXPECT_TRUE(Attend(none, 2).empty());
  const AttentionCase padding({}, {{.slots = 3, .tokens = {{}, {}, {}}}}, kSeed);
  EXPECT_EQ(Attend(padding, 2), std::vector<float>(padding.out_size(), 0.0f));
}

}  // namespace
}  // namespace baton
