#include "cache/window_caches.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

constexpr int32_t kBlockSize = 4;

// Two windows beside a path of ten full blocks. A match needs one block of the first window and
// three of the second.
class WindowCachesTest : public testing::Test {
 protected:
  WindowCachesTest() {
    for (int32_t i = 0; i < 10; ++i) path_.push_back(BlockId(i));
    for (WindowCache* window : {&narrow_, &wide_}) {
      std::vector<BlockId> own;
      window->Allocate(10, own);
      for (size_t i = 0; i < own.size(); ++i) {
        window->Put(path_[i], own[i], 0);
        window->ReleaseHold(own[i], BlockHolder::kSequence);
      }
      both_.Add(window);
    }
  }
  std::span<const BlockId> Block(size_t at) const { return std::span(path_).subspan(at, 1); }

  WindowCache narrow_{
      {.window = 5, .num_blocks = 16, .max_blocks = 16}, kBlockSize, 16, EvictionPolicy::kLru};
  WindowCache wide_{
      {.window = 13, .num_blocks = 16, .max_blocks = 16}, kBlockSize, 16, EvictionPolicy::kLru};
  std::vector<BlockId> path_;
  WindowCaches both_;
};

TEST_F(WindowCachesTest, APrefixIsWholeWhereEveryWindowIs) {
  EXPECT_EQ(both_.LongestWhole(path_), 10);
  narrow_.Drop(Block(9));
  EXPECT_EQ(both_.LongestWhole(path_), 9);
  wide_.Drop(Block(6));
  EXPECT_EQ(both_.LongestWhole(path_), 6) << "the wide window needs three blocks";
  narrow_.Drop(Block(5));
  EXPECT_EQ(both_.LongestWhole(path_), 5)
      << "the wide window shortens it, then the narrow one is not whole";
  wide_.Drop(Block(4));
  EXPECT_EQ(both_.LongestWhole(path_), 4);
}

TEST_F(WindowCachesTest, BlocksFreedByTheTreeLeaveEveryWindow) {
  both_.Drop(std::span(path_).subspan(7));
  for (const BlockId block : std::span(path_).subspan(7)) {
    EXPECT_EQ(narrow_.At(block), kNoBlock);
    EXPECT_EQ(wide_.At(block), kNoBlock);
  }
  EXPECT_EQ(both_.LongestWhole(path_), 7);
}

TEST(WindowCaches, WithoutWindowsEveryPathIsWhole) {
  const WindowCaches none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.LongestWhole(std::vector<BlockId>(3, BlockId(0))), 3);
}

}  // namespace
}  // namespace baton
