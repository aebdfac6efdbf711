#include "cache/index/block_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace baton {
namespace {

std::vector<BlockLocation> All(const BlockTable& table, BlockTable::Key key) {
  std::vector<BlockLocation> found;
  BlockTable::Find(table.view(), key, [&](const BlockLocation& at) {
    found.push_back(at);
    return false;
  });
  return found;
}

bool Has(const BlockTable& table, uint64_t bits, BlockLocation at) {
  return BlockTable::Find(table.view(), BlockTable::Key(bits),
                          [&](const BlockLocation& place) { return place == at; })
      .has_value();
}

void Insert(BlockTable& table, uint64_t bits, BlockLocation at) {
  table.Reserve(1);
  BlockTable::Row row(table);
  const BlockTable::Key key(bits);
  row.Insert(row.HomeOf(key), key, at);
}

void Erase(BlockTable& table, uint64_t bits, BlockLocation at) {
  {
    BlockTable::Row row(table);
    row.Erase(BlockTable::Key(bits), at);
  }
  table.ShrinkIfSparse();
}

TEST(BlockTable, KeepsEveryEntryOfOneKeyApart) {
  BlockTable table(1000);
  for (uint32_t i = 0; i < 50; ++i) Insert(table, 42, {.line = i, .offset = i});
  EXPECT_EQ(All(table, BlockTable::Key(42)).size(), 50u);
  for (uint32_t i = 0; i < 50; i += 2) Erase(table, 42, {.line = i, .offset = i});
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(Has(table, 42, {.line = i, .offset = i}), i % 2 == 1);
  }
  EXPECT_EQ(table.entries(), 25u);
}

TEST(BlockTable, AHomeBucketNeverDeniesAStoredKey) {
  BlockTable table(1000);
  for (uint32_t i = 0; i < 300; ++i) {
    const uint64_t bits = (i / 20 + 1) * 0x9e3779b97f4a7c15;  // twenty entries with each key
    Insert(table, bits, {.line = i, .offset = 0});
    BlockTable::Row row(table);
    for (uint32_t j = 0; j <= i; ++j) {
      const BlockTable::Key key((j / 20 + 1) * 0x9e3779b97f4a7c15);
      ASSERT_TRUE(BlockTable::Row::MayHave(row.HomeOf(key), key));
    }
    const BlockTable::Key other(uint64_t{12345} << 40 | 5);
    ASSERT_FALSE(All(table, other).size() > 0);
  }
}

TEST(BlockTable, MoveChangesTheLocationAlone) {
  BlockTable table(100);
  Insert(table, 7, {.line = 1, .offset = 2});
  table.Move(BlockTable::Key(7), {.line = 1, .offset = 2}, {.line = (1 << 27) - 1, .offset = 253});
  EXPECT_FALSE(Has(table, 7, {.line = 1, .offset = 2}));
  EXPECT_TRUE(Has(table, 7, {.line = (1 << 27) - 1, .offset = 253}));
}

TEST(BlockTable, AViewFromBeforeARebuildIsNotCurrent) {
  BlockTable table(10'000);
  const BlockTable::View view = table.view();
  EXPECT_TRUE(table.IsCurrent(view));
  for (uint32_t i = 0; i < 1000; ++i)
    Insert(table, i * 0x9e3779b97f4a7c15, {.line = i, .offset = 0});
  EXPECT_FALSE(table.IsCurrent(view));
}

TEST(BlockTable, GivesMemoryBackWhenEmptied) {
  BlockTable table(100'000);
  for (uint32_t i = 0; i < 50'000; ++i) {
    Insert(table, i * 0x9e3779b97f4a7c15, {.line = i, .offset = 0});
  }
  EXPECT_LT(table.bytes(), 50'000u * 64 / 2);
  for (uint32_t i = 0; i < 50'000; ++i) {
    Erase(table, i * 0x9e3779b97f4a7c15, {.line = i, .offset = 0});
  }
  EXPECT_LE(table.bytes(), 64u * 64);
}

TEST(BlockTable, DoesNotRebuildForTheExpectedNumberOfEntries) {
  BlockTable table(100'000, 20'000);
  const BlockTable::View view = table.view();
  for (uint32_t i = 0; i < 20'000; ++i) {
    Insert(table, i * 0x9e3779b97f4a7c15, {.line = i, .offset = 0});
    if (i % 3 == 0) Erase(table, i * 0x9e3779b97f4a7c15, {.line = i, .offset = 0});
  }
  EXPECT_TRUE(table.IsCurrent(view));
}

TEST(BlockTable, AgreesWithAMapOverRandomEvents) {
  // Keys with many bits, and keys with few bits, which fill the same buckets.
  for (const uint64_t different : {uint64_t{1} << 40, uint64_t{300}, uint64_t{3}}) {
    const uint32_t seed = 11;
    SCOPED_TRACE(testing::Message() << different << " keys, seed " << seed);
    std::mt19937_64 random(seed);
    BlockTable table(2'000);
    std::multimap<uint64_t, BlockLocation> model;
    uint32_t next_line = 0;
    for (int i = 0; i < 50'000; ++i) {
      const bool growing = i / 5'000 % 2 == 0;
      if (model.size() < 2'000 && random() % 10 < (growing ? 7 : 3)) {
        const uint64_t bits = random() % different * 0x9e3779b97f4a7c15;
        const BlockLocation at{.line = next_line++,
                               .offset = static_cast<uint32_t>(random() % 256)};
        Insert(table, bits, at);
        model.emplace(bits, at);
      } else if (!model.empty()) {
        auto it = model.begin();
        std::advance(it, random() % std::min<size_t>(model.size(), 20));
        Erase(table, it->first, it->second);
        ASSERT_FALSE(Has(table, it->first, it->second));
        model.erase(it);
      }
      ASSERT_EQ(table.entries(), model.size());
      if (i % 1'000 != 0) continue;
      for (const auto& [bits, at] : model) ASSERT_TRUE(Has(table, bits, at));
    }
  }
}

}  // namespace
}  // namespace baton
