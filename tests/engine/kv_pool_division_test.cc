#include "engine/kv_pool_division.h"

#include <gtest/gtest.h>

#include "cache/window_tables.h"

namespace baton {
namespace {

const KvCacheSpec& TwoGroups() {
  static const KvCacheSpec spec{
      .groups = {{.layers = 1, .kv_heads = 1, .head_dim = 8, .model_layers = {0}},
                 {.kind = KvGroupKind::kSlidingWindow,
                  .layers = 5,
                  .kv_heads = 1,
                  .head_dim = 8,
                  .window = 100,
                  .model_layers = {1, 2, 3, 4, 5}}}};
  return spec;
}

EngineOptions Options() {
  EngineOptions options;
  options.block_size = 16;
  options.max_running = 4;
  options.max_chunk_tokens = 64;
  options.steps_in_flight = 1;
  return options;
}

TEST(KvPoolDivision, OneGroupHasAllOfIt) {
  const KvCacheSpec one{.groups = {{.layers = 1, .kv_heads = 1, .head_dim = 8}}};
  const KvPoolDivision division(one, {1000}, Options());
  EXPECT_EQ(division.BlocksFor(77), BlockCounts(77));
  EXPECT_EQ(division.MostIn(77'999), 77);
  EXPECT_EQ(division.MostIn(999), 0);
  EXPECT_EQ(division.MostIn(int64_t{1} << 62), int64_t{kMaxKvBlocks} + 1);
}

TEST(KvPoolDivision, AWindowGetsBlocksForRunningSequencesAndACacheShareUpToGroup0s) {
  const KvPoolDivision division(TwoGroups(), {100, 500}, Options());
  // 163 slots of a prompt touch at most 12 blocks; 100 slots of each of three others touch at most
  // 8.
  EXPECT_EQ(division.BlocksFor(800)[1], 12 + 3 * 8 + 100);
  EXPECT_EQ(division.BlocksFor(800)[0], 800);
  EXPECT_EQ(division.BlocksFor(20)[1], 20);
  EXPECT_EQ(division.BlocksFor(1)[1], 1);
  EngineOptions contiguous = Options();
  contiguous.paged = false;
  EXPECT_EQ(KvPoolDivision(TwoGroups(), {100, 500}, contiguous).BlocksFor(800)[1], 800);
}

TEST(KvPoolDivision, TheMostInSomeBytesFitsAndOneMoreDoesNot) {
  for (const int32_t max_running : {1, 4, 1024}) {
    EngineOptions options = Options();
    options.max_running = max_running;
    const KvPoolDivision division(TwoGroups(), {100, 500}, options);
    for (const int64_t bytes : {599, 600, 601, 12'345, 1'000'000, 123'456'789}) {
      const auto most = static_cast<int32_t>(division.MostIn(bytes));
      EXPECT_LE(division.BytesOf(division.BlocksFor(most)), bytes);
      EXPECT_GT(division.BytesOf(division.BlocksFor(most + 1)), bytes) << max_running;
    }
  }
}

// For every pool size: a sequence that fits in group 0 also fits in the window.
TEST(KvPoolDivision, TheLongestSequenceOfGroup0HasRoomInEveryWindow) {
  for (const int32_t depth : {1, 2}) {
    for (const int32_t block_size : {1, 16, 128}) {
      EngineOptions options = Options();
      options.max_running = 1;
      options.steps_in_flight = depth;
      options.block_size = block_size;
      const KvPoolDivision division(TwoGroups(), {100, 500}, options);
      for (int32_t full = 1; full < 400; ++full) {
        const WindowTables tables(1, {.window = 100, .num_blocks = division.BlocksFor(full)[1]},
                                  block_size, MaxStepTokens(options), full, EvictionPolicy::kLru);
        EXPECT_LE(tables.ChargeToAdmit(0, full * block_size), tables.available()) << full;
      }
    }
  }
}

}  // namespace
}  // namespace baton
