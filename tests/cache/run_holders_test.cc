#include "cache/index/run_holders.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/common/random_operations.h"

namespace baton {
namespace {

// The positions of each holder, read back through Load.
using Held = std::map<HolderId, std::set<uint32_t>>;

Held ReadBack(RunHolders& holders, const RunStore& store, uint32_t line) {
  Held held;
  const uint32_t length = store.LoadHead(line).length();
  const RunHolders::Image& image = holders.Load(line);
  for (size_t w = 0; w < image.whole.size(); ++w) {
    for (int bit = 0; bit < 64; ++bit) {
      if ((image.whole[w] >> bit & 1) == 0) continue;
      for (uint32_t i = 0; i < length; ++i) held[static_cast<HolderId>(w * 64 + bit)].insert(i);
    }
  }
  for (const HolderEntry& entry : image.parts) {
    for (uint32_t i = entry.begin; i < entry.end; ++i) {
      EXPECT_TRUE(held[entry.holder].insert(i).second) << "intervals overlap";
    }
  }
  return held;
}

TEST(HolderEntry, PacksAndUnpacks) {
  for (const HolderEntry entry :
       {HolderEntry{0, 0, 1}, HolderEntry{65'535, 253, 254}, HolderEntry{7, 0, 254}}) {
    EXPECT_EQ(HolderEntry::Unpack(entry.Pack()), entry);
  }
}

TEST(RunHolders, ImagesAreCutIntoPieces) {
  RunHolders::Image image{.whole = {}, .parts = {{1, 0, 4}, {2, 2, 6}, {3, 5, 9}}};
  image.AddWhole(70);
  const RunHolders::Image cut = image.Cut(10, 2, 6);
  ASSERT_EQ(cut.parts.size(), 2u);
  EXPECT_EQ(cut.parts[0], (HolderEntry{1, 0, 2}));
  EXPECT_EQ(cut.parts[1], (HolderEntry{3, 3, 4}));
  EXPECT_EQ(cut.whole, (std::vector<uint64_t>{1 << 2, 1 << 6}));
  EXPECT_TRUE(image.RemoveIf([](HolderId holder) { return holder >= 3; }));
  EXPECT_FALSE(image.RemoveIf([](HolderId holder) { return holder >= 3; }));
  EXPECT_EQ(image.parts.size(), 2u);
}

TEST(RunHolders, ReportsTheLastHeldBlock) {
  RunStore store(1000);
  RunHolders holders(&store);
  uint64_t refused = 0;
  const uint32_t line = *store.NewRun(20);
  holders.Start(line, 20, 5);
  EXPECT_EQ(holders.HeldEnd(line), 20u);
  EXPECT_EQ(holders.HeldAtLeast(line), 20u);
  EXPECT_EQ(holders.Add(line, 6, 0, 8, &refused), 8u);
  EXPECT_EQ(holders.Add(line, 6, 4, 10, &refused), 2u);
  EXPECT_EQ(holders.Remove(line, 5, 12, 20, &refused), 8u);
  EXPECT_EQ(holders.HeldEnd(line), 12u);
  EXPECT_EQ(holders.Remove(line, 5, 0, 20, &refused), 12u);
  EXPECT_EQ(holders.HeldEnd(line), 10u);
  EXPECT_EQ(holders.Remove(line, 6, 3, 5, &refused), 2u);
  EXPECT_EQ(holders.HeldAtLeast(line), 8u);
  EXPECT_EQ(holders.Remove(line, 6, 0, 20, &refused), 8u);
  EXPECT_EQ(holders.HeldEnd(line), 0u);
  EXPECT_EQ(refused, 0u);
}

TEST(RunHolders, ManyHoldersUseAWideFormatAndFewUseTheNarrowOne) {
  RunStore store(1000);
  RunHolders holders(&store);
  uint64_t refused = 0;
  const uint32_t line = *store.NewRun(10);
  holders.Start(line, 10, 0);
  for (HolderId holder = 1; holder < 200; ++holder) {
    EXPECT_EQ(holders.Add(line, holder, 0, 10 - holder % 2, &refused), 10u - holder % 2);
  }
  EXPECT_EQ(store.LoadHead(line).entries(), RunHead::kWide);
  EXPECT_TRUE(holders.IsCrowded(line));
  EXPECT_EQ(holders.HeldEnd(line), 10u);
  for (HolderId holder = 199; holder > 0; --holder) {
    EXPECT_EQ(holders.Remove(line, holder, 0, 10, &refused), 10u - holder % 2);
  }
  EXPECT_EQ(store.LoadHead(line).entries(), 1);
  holders.FreeRun(line);
  EXPECT_EQ(store.free_bytes(), store.bytes());
}

TEST(RunHolders, WithoutMemoryAHolderIsRefusedOrForgottenWhole) {
  RunStore store(4);
  RunHolders holders(&store);
  const uint32_t line = *store.NewRun(14);  // uses all memory
  ASSERT_EQ(store.bytes(), 256u);
  uint64_t refused = 0;
  holders.Start(line, 14, 0);
  for (HolderId holder = 1; holder < 6; ++holder) holders.Add(line, holder, 0, 14, &refused);
  ASSERT_EQ(refused, 0u);
  EXPECT_EQ(holders.Add(line, 6, 0, 3, &refused), 0u);
  EXPECT_EQ(refused, 3u);
  // Splitting the interval would need a seventh entry, so the holder is forgotten.
  EXPECT_EQ(holders.Remove(line, 2, 5, 6, &refused), 14u);
  EXPECT_EQ(refused, 3u + 13u);
  EXPECT_FALSE(ReadBack(holders, store, line).contains(2));
}

TEST(RunHolders, AgreesWithSetsOverRandomEvents) {
  constexpr int kSeeds = RandomSeeds(4);
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    RunStore store(10'000);
    RunHolders holders(&store);
    const uint32_t length = 1 + random() % 60;
    const uint32_t line = *store.NewRun(length);
    holders.Start(line, length, 0);
    Held model;
    for (uint32_t i = 0; i < length; ++i) model[0].insert(i);
    uint64_t refused = 0;
    for (int step = 0; step < 5'000; ++step) {
      const auto holder = static_cast<HolderId>(random() % (seed % 2 == 0 ? 5 : 150));
      const uint32_t begin = random() % 3 == 0 ? 0 : random() % length;
      const uint32_t end = random() % 3 == 0 ? length : begin + 1 + random() % (length - begin);
      uint32_t changed = 0;
      const bool adding = random() % 2 == 0;
      for (uint32_t i = begin; i < end; ++i) {
        changed += adding ? model[holder].insert(i).second : model[holder].erase(i);
      }
      if (model[holder].empty()) model.erase(holder);
      ASSERT_EQ(adding ? holders.Add(line, holder, begin, end, &refused)
                       : holders.Remove(line, holder, begin, end, &refused),
                changed);
      ASSERT_EQ(ReadBack(holders, store, line), model);
      uint32_t held_end = 0;
      for (const auto& [id, held] : model) held_end = std::max(held_end, *held.rbegin() + 1);
      ASSERT_EQ(holders.HeldEnd(line), held_end);
    }
    EXPECT_EQ(refused, 0u);
  }
}

}  // namespace
}  // namespace baton
