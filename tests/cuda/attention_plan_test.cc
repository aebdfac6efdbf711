// Which units of paged attention are divided among blocks, for grids and workspaces of a GPU.
#include "kernels/cuda/attention_plan.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/run_kernel.h"

namespace baton {
namespace {

using attention::FindShare;
using attention::kScratch;
using attention::Share;

struct PlanParams {
  PagedAttentionParams paged;
  Share* shares;
};

template <bool kInPieces>
void FindShares(const PlanParams& p) {
  const Share share = FindShare<kInPieces>(p.paged, SharedMemory<int64_t>());
  if (threadIdx.x == 0) p.shares[blockIdx.x] = share;
}

// One sequence with a chunk of 32 tokens, all of which see `slots` slots.
template <bool kInPieces>
std::vector<Share> Plan(int blocks, int states, int units, int64_t slots) {
  constexpr int kTokens = 32;
  const VisibleRun run{.end = static_cast<int32_t>(slots)};
  const std::vector<int32_t> sequences(kTokens, 0);
  const std::vector<RowRuns> rows(kTokens,
                                  {.run_count = 1, .last_end = static_cast<int32_t>(slots)});
  std::vector<Share> shares(blocks);
  PlanParams params{};
  params.shares = shares.data();
  params.paged.sequence_of_token = sequences.data();
  params.paged.runs = &run;
  params.paged.row_runs = rows.data();
  params.paged.tokens = kTokens;
  params.paged.kv_heads = units;
  params.paged.head_groups = 1;
  params.paged.tile_tokens = kTokens;
  params.paged.states_per_block = states;
  gpu_emulator::Executor executor;
  const absl::Status status = RunAsKernel<&FindShares<kInPieces>>(
      executor, {{blocks, 1, 1}, {256, 1, 1}, kScratch * sizeof(int64_t)}, params);
  EXPECT_TRUE(status.ok()) << status;
  return shares;
}

// A block's share has 32 of the 4096 items. They are four groups of eight segments, and at most
// seven segments of a group before.
TEST(AttentionPlan, UnitsOfLongContextsAreDividedWhereThePiecesOfAShareFit) {
  for (const Share& share : Plan<true>(132, 30, 16, 256 * 256)) {
    EXPECT_EQ(share.quota, 32);
    EXPECT_FALSE(share.whole);
  }
}

TEST(AttentionPlan, UnitsStayWholeWhereThePiecesOfAShareDoNotFit) {
  // 8 + 1 pieces besides one for each group of eight, and two states of a unit that the block began
  EXPECT_FALSE(Plan<true>(132, 15, 16, 256 * 256)[0].whole);
  EXPECT_TRUE(Plan<true>(132, 14, 16, 256 * 256)[0].whole);
  // One state for each item, and one of the unit that the block began.
  EXPECT_FALSE(Plan<false>(132, 33, 16, 256 * 256)[0].whole);
  EXPECT_TRUE(Plan<false>(132, 32, 16, 256 * 256)[0].whole);
}

// Decode rows of 64 sequences in tiles of 32. All see `shared` segments, and row i rest(i) more.
template <typename Rest>
std::vector<Share> PlanRows(int blocks, int states, int units, int shared, bool knows_shared,
                            const Rest& rest) {
  constexpr int kTokens = 64;
  const std::vector<VisibleRun> runs(kTokens);
  std::vector<int32_t> sequences(kTokens), segments(kTokens, shared);
  std::vector<RowRuns> rows(kTokens);
  segments[0] = 0;
  for (int i = 0; i < kTokens; ++i) {
    sequences[i] = i;
    rows[i] = {.first_run = i, .run_count = 1, .last_end = (shared + rest(i)) * 256};
  }
  std::vector<Share> shares(blocks);
  PlanParams params{};
  params.shares = shares.data();
  params.paged.sequence_of_token = sequences.data();
  params.paged.runs = runs.data();
  params.paged.row_runs = rows.data();
  params.paged.shared_segments = knows_shared ? segments.data() : nullptr;
  params.paged.tokens = kTokens;
  params.paged.kv_heads = units;
  params.paged.head_groups = 1;
  params.paged.tile_tokens = 32;
  params.paged.states_per_block = states;
  gpu_emulator::Executor executor;
  const absl::Status status = RunAsKernel<&FindShares<true>>(
      executor, {{blocks, 1, 1}, {256, 1, 1}, kScratch * sizeof(int64_t)}, params);
  EXPECT_TRUE(status.ok()) << status;
  return shares;
}

TEST(AttentionPlan, SharedSegmentsAreItemsOnce) {
  const auto one = [](int) { return 1; };
  EXPECT_EQ(PlanRows(132, 30, 8, 32, true, one)[0].items, 32 + 32);
  EXPECT_EQ(PlanRows(132, 30, 8, 32, false, one)[0].items, 32 * 33);
  EXPECT_EQ(PlanRows(132, 30, 8, 32, true, [](int) { return 0; })[0].items, 32);
}

// The pieces of all rows of a tile would not fit. But a share has items of a few rows.
TEST(AttentionPlan, UnitsAreDividedWhereThePiecesOfTheRowsInAShareFit) {
  const auto rest = [](int i) { return i % 4 == 0 ? 1 : 11; };
  const std::vector<Share> shares = PlanRows(132, 30, 8, 32, true, rest);
  EXPECT_EQ(shares[0].items, 32 + 8 * 34);
  EXPECT_EQ(shares[0].quota, 37);
  EXPECT_FALSE(shares[0].whole);
  // 8 pieces of a group of eight, one for each eight of 37 items, one for each of at most 7 rows,
  // and two states of a unit that the block began.
  EXPECT_FALSE(PlanRows(132, 21, 8, 32, true, rest)[0].whole);
  EXPECT_TRUE(PlanRows(132, 20, 8, 32, true, rest)[0].whole);
}

// Threads then have three tiles each, and the one with a block's first item looks for its tile.
TEST(AttentionPlan, ABlockFindsTheTileOfItsFirstItemAmongMoreTilesThanThreads) {
  constexpr int kTokens = 600, kBlocks = 40, kHeads = 2;
  std::vector<VisibleRun> runs(kTokens);
  std::vector<RowRuns> rows(kTokens);
  std::vector<int32_t> sequences(kTokens);
  for (int i = 0; i < kTokens; ++i) {
    sequences[i] = i;
    // Some tokens see nothing, so their tiles have no items.
    rows[i] = {.first_run = i, .run_count = 1, .last_end = i * 7919 % 11 * 200};
  }
  std::vector<Share> shares(kBlocks);
  PlanParams params{};
  params.shares = shares.data();
  params.paged.sequence_of_token = sequences.data();
  params.paged.runs = runs.data();
  params.paged.row_runs = rows.data();
  params.paged.tokens = kTokens;
  params.paged.kv_heads = kHeads;
  params.paged.head_groups = 1;
  params.paged.tile_tokens = 1;
  params.paged.states_per_block = 1000;
  gpu_emulator::Executor executor;
  ASSERT_TRUE(RunAsKernel<&FindShares<true>>(
                  executor, {{kBlocks, 1, 1}, {256, 1, 1}, kScratch * sizeof(int64_t)}, params)
                  .ok());
  const auto items_of = [&](int tile) { return (rows[tile].last_end + 255) / 256; };
  int tile = 0;
  int64_t first = 0;
  for (const Share& share : shares) {
    while (first + int64_t{items_of(tile)} * kHeads <= share.begin) {
      first += int64_t{items_of(tile++)} * kHeads;
    }
    EXPECT_EQ(share.tile, tile);
    EXPECT_EQ(share.first, first);
    EXPECT_EQ(share.items, items_of(tile));
  }
  EXPECT_GT(tile, 256);
}

}  // namespace
}  // namespace baton
