#include "cache/index/prefix_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class PrefixWalkTest : public testing::Test {
 protected:
  PrefixWalkTest() : store_(1000), holders_(&store_) {
    for (uint32_t i = 0; i < 100; ++i) table_.FindOrAdd(IndexedWorker(i), CacheTier::kDevice);
  }
  // Creates a run of ten blocks with these holders.
  uint32_t Run(const RunHolders::Image& image) {
    const uint32_t line = *store_.NewRun(10);
    EXPECT_TRUE(holders_.Store(line, 10, image));
    return line;
  }
  bool Step(PrefixWalk& walk, uint32_t line, uint32_t offset, uint32_t count) {
    const RunHead head = store_.LoadHead(line);
    const uint64_t* const words = store_.Words(line);
    return head.entries() == RunHead::kWide
               ? walk.StepWide(RunHolders::Wide(store_, words[1]), offset, count)
               : walk.StepInline(words, head.entries(), offset, count);
  }
  std::map<int, int> Answer() {
    std::map<int, int> units;
    match_.ForEach([&](HolderId holder, int32_t count) {
      EXPECT_TRUE(units.emplace(holder, count).second) << "holder " << holder << " twice";
      EXPECT_EQ(match_.units(holder), count);
    });
    return units;
  }
  static RunHolders::Image Everybody(int holders) {
    RunHolders::Image image;
    for (int i = 0; i < holders; ++i) image.AddWhole(static_cast<HolderId>(i));
    return image;
  }

  RunStore store_;
  RunHolders holders_;
  HolderTable table_;
  PrefixMatch match_;
};

TEST_F(PrefixWalkTest, HoldersStopWhereTheirPartOfARunEnds) {
  PrefixWalk walk(table_, match_);
  EXPECT_TRUE(Step(walk, Run({{}, {{1, 0, 3}, {2, 0, 10}, {3, 5, 9}, {4, 2, 10}}}), 0, 10));
  EXPECT_FALSE(Step(walk, Run({{}, {{1, 0, 10}, {2, 4, 6}}}), 4, 5));
  walk.End();
  EXPECT_THAT(Answer(), ElementsAre(Pair(1, 3), Pair(2, 12)));
  EXPECT_EQ(match_.units(4), 0);
}

TEST_F(PrefixWalkTest, APartialMatchOfARunKeepsTheHoldersOfThatPart) {
  PrefixWalk walk(table_, match_);
  EXPECT_TRUE(Step(walk, Run({{}, {{1, 0, 4}, {2, 0, 10}}}), 2, 2));
  walk.End();
  EXPECT_THAT(Answer(), ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST_F(PrefixWalkTest, HandlesRunsWithManyAndFewHoldersInAnyOrder) {
  RunHolders::Image many = Everybody(70);
  many.parts = {{80, 0, 4}, {81, 0, 9}, {82, 1, 10}};
  RunHolders::Image most = Everybody(60);
  most.parts = {{62, 0, 5}, {65, 2, 9}};
  RunHolders::Image all = Everybody(90);
  all.whole[0] &= ~(uint64_t{1} << 5);
  all.parts = {{5, 3, 7}};
  PrefixWalk walk(table_, match_);
  EXPECT_TRUE(Step(walk, Run(many), 0, 9));  // holder 80 ends at 4 units
  EXPECT_TRUE(Step(walk, Run(most), 0, 6));  // 62 stops at 14, the rest at 9
  EXPECT_TRUE(Step(walk, Run({{}, {{5, 0, 10}, {6, 0, 2}, {7, 0, 10}}}), 0, 3));  // 6 stops at 17
  EXPECT_TRUE(Step(walk, Run(all), 3, 6));                                        // 5 stops at 22
  walk.End();                                                                     // 7 stops at 24
  const auto answer = Answer();
  EXPECT_EQ(answer.at(80), 4);
  EXPECT_EQ(answer.at(81), 9);
  EXPECT_FALSE(answer.contains(82));
  EXPECT_EQ(answer.at(62), 14);
  EXPECT_EQ(answer.at(65), 9);
  EXPECT_EQ(answer.at(69), 9);
  EXPECT_EQ(answer.at(0), 15);
  EXPECT_EQ(answer.at(59), 15);
  EXPECT_EQ(answer.at(6), 17);
  EXPECT_EQ(answer.at(5), 22);
  EXPECT_EQ(answer.at(7), 24);
  EXPECT_EQ(answer.size(), 72u);
}

TEST_F(PrefixWalkTest, RetiredHoldersAreInNoAnswer) {
  table_.Retire(IndexedWorker(1));
  PrefixWalk first(table_, match_);
  EXPECT_TRUE(Step(first, Run({{}, {{1, 0, 10}, {2, 0, 10}}}), 0, 10));
  first.End();
  EXPECT_THAT(Answer(), ElementsAre(Pair(2, 10)));
  PrefixWalk second(table_, match_);
  EXPECT_TRUE(Step(second, Run(Everybody(100)), 0, 10));
  second.End();
  EXPECT_EQ(Answer().size(), 99u);
}

TEST_F(PrefixWalkTest, WithoutAMatchTheAnswerIsEmpty) {
  PrefixWalk walk(table_, match_);
  walk.End();
  EXPECT_THAT(Answer(), IsEmpty());
}

}  // namespace
}  // namespace baton
