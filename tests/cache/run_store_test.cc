#include "cache/index/run_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace baton {
namespace {

TEST(RunStore, ARunHasTheRequestedRoom) {
  RunStore store(10'000);
  for (uint32_t blocks = 1; blocks <= RunStore::kMaxRun; ++blocks) {
    const auto line = store.NewRun(blocks);
    ASSERT_TRUE(line.has_value());
    EXPECT_GE(store.Capacity(*line), blocks);
    EXPECT_LE(store.Capacity(*line), std::max(blocks + 4, blocks * 4 / 3));
    EXPECT_EQ(store.LoadHead(*line).length(), 0u);
  }
}

TEST(RunStore, KeepsHashesApart) {
  RunStore store(1000);
  const uint32_t a = *store.NewRun(10);
  const uint32_t b = *store.NewRun(254);
  for (uint32_t i = 0; i < 10; ++i) store.HashesOf(a).Set(i, {.low = i, .high = 100});
  for (uint32_t i = 0; i < 254; ++i) store.HashesOf(b).Set(i, {.low = i, .high = 200});
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(store.LoadHash(a, i), (Hash128{i, 100}));
  for (uint32_t i = 0; i < 254; ++i) EXPECT_EQ(store.LoadHash(b, i), (Hash128{i, 200}));
}

TEST(RunStore, CountsTheMemoryThatIsReadyFromTheBeginningAndGrowsBeyondIt) {
  RunStore store(1000, 100);
  EXPECT_EQ(store.bytes(), 100u * 64);
  const uint32_t first = *store.NewRun(254);  // all 64 lines
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(store.bytes(), 100u * 64);
  const uint32_t second = *store.NewRun(254);
  EXPECT_EQ(store.NextChunk(first), second);
  EXPECT_EQ(store.end_line(), store.NextChunk(second));
  EXPECT_EQ(store.bytes(), store.end_line() * 64u);
  EXPECT_GT(store.bytes(), 100u * 64);
}

TEST(RunStore, EveryChangeGivesTheHeadAnotherVersion) {
  RunStore store(100);
  const uint32_t line = *store.NewRun(4);
  store.Publish(line, 3, 1);
  const RunHead published = store.LoadHead(line);
  EXPECT_FALSE(published.being_changed());
  EXPECT_EQ(published.length(), 3u);
  EXPECT_EQ(published.entries(), 1);
  store.BeginChange(line);
  EXPECT_TRUE(store.LoadHead(line).being_changed());
  store.Publish(line, 3, 1);
  EXPECT_FALSE(store.LoadHead(line).being_changed());
  EXPECT_NE(store.LoadHead(line), published);
  const RunHead before = store.LoadHead(line);
  store.Free(line);
  EXPECT_NE(store.LoadHead(line), before);
  EXPECT_EQ(store.LoadHead(line).length(), 0u);
  EXPECT_EQ(store.LoadHead(line).chunk_class(), before.chunk_class());
}

TEST(RunStore, UsesFreedChunksAgain) {
  RunStore store(1000);
  const uint32_t line = *store.NewRun(20);
  const size_t bytes = store.bytes();
  store.Free(line);
  EXPECT_EQ(store.free_bytes(), bytes);
  EXPECT_EQ(store.NewRun(20), line);
  EXPECT_EQ(store.bytes(), bytes);
  EXPECT_EQ(store.free_bytes(), 0u);
}

TEST(RunStore, WhenMemoryIsFullTakesLargerThenSmallerChunks) {
  RunStore store(7);
  const uint32_t large = *store.NewRun(14);  // 4 lines
  const uint32_t small = *store.NewRun(6);   // 2 lines
  EXPECT_EQ(store.NewRun(14), 6u) << "one line of memory is left";
  EXPECT_EQ(store.NewRun(1), std::nullopt);
  store.Free(large);
  EXPECT_EQ(store.NewRun(3), large);
  store.Free(small);
  EXPECT_EQ(store.NewRun(100), small);
  EXPECT_EQ(store.Capacity(small), 6u);
  EXPECT_EQ(store.NewChunk(1), std::nullopt);
}

TEST(RunStore, EveryChunkIsReachedFromLineZero) {
  RunStore store(100'000);
  std::mt19937 random(3);
  std::vector<uint32_t> lines;
  for (int i = 0; i < 500; ++i) {
    lines.push_back(random() % 3 == 0 ? *store.NewChunk(1 + random() % 2000)
                                      : *store.NewRun(1 + random() % RunStore::kMaxRun));
  }
  std::sort(lines.begin(), lines.end());
  std::vector<uint32_t> walked;
  for (uint32_t line = 0; line < store.end_line(); line = store.NextChunk(line)) {
    walked.push_back(line);
  }
  EXPECT_EQ(walked, lines);
}

}  // namespace
}  // namespace baton
