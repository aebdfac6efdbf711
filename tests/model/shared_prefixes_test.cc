#include "model/shared_prefixes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kBlockSize = 128;
constexpr int32_t kBlocks = kSharedSlots / kBlockSize;  // of a group of segments

// Chunks with tables of their own. A chunk's first blocks are those of a prefix.
class Chunks {
 public:
  // Shares `shared` blocks of `prefix`, and sees `slots` slots.
  void Add(int32_t prefix, int32_t shared, int32_t slots, int32_t rows = 1) {
    std::vector<BlockId> table;
    for (int32_t i = 0; i * kBlockSize < slots; ++i) {
      table.push_back(BlockId(i < shared ? 1'000 * prefix + i : next_++));
    }
    tables_.push_back(table);
    chunks_.push_back({.table = {}, .rows = rows, .slots = slots});
  }
  std::vector<int32_t> Segments() {
    for (size_t i = 0; i < chunks_.size(); ++i) chunks_[i].table = tables_[i];
    return SharedSegmentsOf(chunks_, kBlockSize);
  }

 private:
  std::vector<std::vector<BlockId>> tables_;
  std::vector<ChunkPrefix> chunks_;
  int32_t next_ = 100'000;
};

TEST(SharedPrefixes, RowsShareWholeGroupsOfSegmentsWithTheRowsBefore) {
  Chunks chunks;
  chunks.Add(1, 2 * kBlocks + 3, 3 * kSharedSlots);
  chunks.Add(1, 2 * kBlocks + 3, 2 * kSharedSlots + 700);
  chunks.Add(2, kBlocks - 1, 2 * kSharedSlots);
  chunks.Add(2, kBlocks - 1, 2 * kSharedSlots);
  EXPECT_THAT(chunks.Segments(), ElementsAre(0, 16, 0, 0));
}

TEST(SharedPrefixes, ARowSeesAllThatItShares) {
  Chunks chunks;
  chunks.Add(1, 3 * kBlocks, 3 * kSharedSlots);
  chunks.Add(1, 3 * kBlocks, 2 * kSharedSlots - 1);
  EXPECT_THAT(chunks.Segments(), ElementsAre(0, 8));
}

TEST(SharedPrefixes, AllRowsOfAChunkShare) {
  Chunks chunks;
  chunks.Add(1, kBlocks, kSharedSlots + 5, 3);
  chunks.Add(1, kBlocks, kSharedSlots + 5, 2);
  chunks.Add(2, kBlocks, kSharedSlots + 5, 2);
  EXPECT_THAT(chunks.Segments(), ElementsAre(0, 8, 8, 8, 8, 0, 0));
}

TEST(SharedPrefixes, ChunksThatCannotShareDivideTheOthers) {
  Chunks chunks;
  chunks.Add(1, kBlocks, kSharedSlots);
  chunks.Add(1, kBlocks, 0);
  chunks.Add(1, kBlocks, kSharedSlots);
  EXPECT_THAT(chunks.Segments(), ElementsAre(0, 0, 0));
  EXPECT_TRUE(SharedSegmentsOf({}, kBlockSize).empty());
}

// A set with the shorter prefix of all saves less than two sets.
TEST(SharedPrefixes, ALongPrefixIsNotGivenUpForAShortOne) {
  Chunks chunks;
  for (int i = 0; i < 3; ++i) chunks.Add(1, 4 * kBlocks, 4 * kSharedSlots);
  chunks.Add(1, kBlocks, 4 * kSharedSlots);
  EXPECT_THAT(chunks.Segments(), ElementsAre(0, 32, 32, 0));
}

// The slots saved by a division into sets, for every division.
int64_t MostSaved(const std::vector<int32_t>& with_next, size_t begin = 0) {
  const size_t count = with_next.size() + 1;
  if (begin >= count) return 0;
  int64_t most = 0;
  int32_t least = 1'000;
  for (size_t end = begin + 1; end <= count; ++end) {
    const int64_t own = end - begin < 2 ? 0 : static_cast<int64_t>(end - begin - 1) * least;
    most = std::max(most, own + MostSaved(with_next, end));
    if (end < count) least = std::min(least, with_next[end - 1]);
  }
  return most;
}

TEST(SharedPrefixes, NoOtherDivisionIntoSetsSavesMore) {
  std::mt19937_64 random(58);
  for (int round = 0; round < 200; ++round) {
    // Neighbours i and i + 1 share with_next[i] groups: in the tables, blocks change from there on.
    std::vector<int32_t> with_next(1 + random() % 7);
    for (int32_t& shared : with_next) shared = static_cast<int32_t>(random() % 4);
    constexpr int32_t kLongest = 3;
    std::vector<std::vector<BlockId>> tables(1);
    int32_t next = 0;
    for (int32_t i = 0; i < kLongest * kBlocks; ++i) tables[0].push_back(BlockId(next++));
    for (const int32_t shared : with_next) {
      std::vector<BlockId> table = tables.back();
      for (int32_t i = shared * kBlocks; i < kLongest * kBlocks; ++i) table[i] = BlockId(next++);
      tables.push_back(table);
    }
    std::vector<ChunkPrefix> chunks;
    for (const auto& table : tables) {
      chunks.push_back({.table = table, .rows = 1, .slots = kLongest * kSharedSlots});
    }
    const std::vector<int32_t> segments = SharedSegmentsOf(chunks, kBlockSize);
    int64_t saved = 0;
    for (size_t i = 1; i < segments.size(); ++i) {
      EXPECT_LE(segments[i], with_next[i - 1] * kT1GroupSegments);
      if (segments[i - 1] != 0 && segments[i] != 0) {
        EXPECT_EQ(segments[i - 1], segments[i]);
      }
      saved += segments[i] / kT1GroupSegments;
    }
    EXPECT_EQ(segments[0], 0);
    EXPECT_EQ(saved, MostSaved(with_next)) << "round " << round;
  }
}

}  // namespace
}  // namespace baton
