#include <gtest/gtest.h>

#include "cache/radix_tree.h"

namespace baton {
namespace {

// The four insertions of SGLang's description of its tree, at a block size of one token.
class RadixTreeDump : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::vector<CacheUnit>& units : std::vector<std::vector<CacheUnit>>{
             {1, 2, 3}, {1, 2, 3, 4, 5}, {1, 2, 4, 5, 6, 7}, {8, 9, 10, 11, 12}}) {
      RadixLock lock = tree_.Match(CacheNamespace(7), units, INT32_MAX).lock;
      const int32_t matched = tree_.Peek(CacheNamespace(7), units, INT32_MAX).blocks;
      std::vector<BlockId> own;
      ASSERT_TRUE(allocator_.Allocate(units.size() - matched, BlockHolder::kSequence, own));
      std::vector<BlockId> blocks = own;
      tree_.Insert(lock, std::span(units).subspan(matched), blocks);
      allocator_.ReleaseHolds(own, BlockHolder::kSequence);
      lock.Drop();
      if (units.size() == 3) {  // so that the next one does not grow this node
        kept_ = tree_.Match(CacheNamespace(7), units, INT32_MAX).lock;
      }
    }
  }
  BlockAllocator allocator_{32};
  RadixTree tree_{1, &allocator_};
  RadixLock kept_;
};

TEST_F(RadixTreeDump, ShowsEachNodeOnceBelowItsParent) {
  EXPECT_EQ(tree_.Dump(100),
            "namespace 00000000000000000000000000000007 locks 1\n"
            "  2 blocks [1 2] uses 4 priority 0 locks 1\n"
            "    1 blocks [3] uses 3 priority 0 locks 1\n"
            "      2 blocks [4 5] uses 1 priority 0 locks 0\n"
            "    4 blocks [4 5 6 7] uses 1 priority 0 locks 0\n"
            "  5 blocks [8 9 10 11 ...] uses 1 priority 0 locks 0\n");
  EXPECT_EQ(tree_.Depth(), 3);
  EXPECT_EQ(tree_.Stats().nodes, 5);
}

TEST_F(RadixTreeDump, StopsAtItsLargestLength) {
  EXPECT_EQ(tree_.Dump(2),
            "namespace 00000000000000000000000000000007 locks 1\n"
            "  2 blocks [1 2] uses 4 priority 0 locks 1\n"
            "... and 4 more\n");
  EXPECT_EQ(tree_.Dump(0), "... and 6 more\n");
}

TEST_F(RadixTreeDump, ShowsWhatClearLeftToItsLocks) {
  tree_.Clear();
  EXPECT_EQ(tree_.Dump(100),
            "namespace 00000000000000000000000000000007 (cleared) locks 1\n"
            "  2 blocks [1 2] uses 4 priority 0 locks 1\n"
            "    1 blocks [3] uses 3 priority 0 locks 1\n");
  EXPECT_EQ(tree_.Depth(), 2);
  kept_.Drop();
  EXPECT_EQ(tree_.Dump(100), "");
  EXPECT_EQ(tree_.Depth(), 0);
}

}  // namespace
}  // namespace baton
