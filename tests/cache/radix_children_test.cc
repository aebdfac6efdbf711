#include "cache/radix_children.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/common/random_operations.h"

namespace baton {
namespace {

TEST(RadixChildren, EqualTagsAreToldApartByTheCaller) {
  RadixChildren children;
  EXPECT_EQ(children.Find(7, [](int32_t) { return true; }), RadixChildren::kNone);
  children.Insert(7, 1);
  children.Insert(7, 2);
  children.Insert(8, 3);
  EXPECT_EQ(children.Find(7, [](int32_t node) { return node == 2; }), 2);
  EXPECT_EQ(children.Find(7, [](int32_t node) { return node == 3; }), RadixChildren::kNone)
      << "node 3 has another tag";
  children.Erase(7, 1);
  EXPECT_EQ(children.Find(7, [](int32_t node) { return node == 2; }), 2);
  EXPECT_EQ(children.Find(8, [](int32_t) { return true; }), 3);
  EXPECT_EQ(children.size(), 2);
}

TEST(RadixChildrenDeathTest, ErasingAnAbsentEntryIsABug) {
  RadixChildren children;
  children.Insert(1, 1);
  EXPECT_DEATH(children.Erase(1, 2), "not in the table");
}

// An attack that needs the seed: blocks whose tags under seed 0 have the same low 16 bits.
TEST(ChildTag, BlocksThatCollideUnderOneSeedDoNotUnderAnother) {
  constexpr uint32_t kMask = 0xFFFF;
  std::vector<std::vector<CacheUnit>> blocks;
  std::vector<CacheUnit> block(16, 1);
  const uint32_t target = ChildTag(0, 0, block) & kMask;
  while (blocks.size() < 32) {
    ++block[0];
    if ((ChildTag(0, 0, block) & kMask) == target) blocks.push_back(block);
  }
  for (const uint64_t seed : {uint64_t{1} << 40, uint64_t{0x9e3779b97f4a7c15}}) {
    std::set<uint32_t> tags;
    for (const std::vector<CacheUnit>& one : blocks) tags.insert(ChildTag(seed, 0, one) & kMask);
    EXPECT_GE(tags.size(), 30u) << "seed " << seed;
  }
  EXPECT_NE(ChildTag(0, 1, block), ChildTag(0, 2, block)) << "the parent must change the tag";
}

// Few tags make long probe sequences that wrap around and move on an erasure.
TEST(RadixChildren, AgreesWithAMapOverRandomOperations) {
  constexpr uint32_t kTags[] = {1, 3, 40, 0};
  constexpr int kSteps = 60'000;
  for (const uint32_t tags : kTags) {
    const uint32_t seed = 11 + tags;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", tags " << tags);
    std::mt19937 random(seed);
    RadixChildren children;
    std::map<int32_t, uint32_t> model;  // from node to tag
    for (int step = 0; step < kSteps; ++step) {
      const int32_t node = random() % 60;
      if (const auto it = model.find(node); it != model.end()) {
        children.Erase(it->second, node);
        model.erase(it);
      } else {
        // Tags near the top of the range have their home slots near the table's end.
        const uint32_t tag = tags == 0 ? random() : UINT32_MAX - random() % tags;
        children.Insert(tag, node);
        model[node] = tag;
      }
      ASSERT_EQ(children.size(), static_cast<int64_t>(model.size()));
      for (const auto& [present, tag] : model) {
        ASSERT_EQ(children.Find(tag, [&, n = present](int32_t found) { return found == n; }),
                  present);
      }
      if (!model.contains(node)) {
        ASSERT_EQ(children.Find(UINT32_MAX, [&](int32_t found) { return found == node; }),
                  RadixChildren::kNone);
      }
    }
  }
  ReportRandomOperations(std::ssize(kTags) * kSteps);
}

}  // namespace
}  // namespace baton
