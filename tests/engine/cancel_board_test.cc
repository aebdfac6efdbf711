#include "engine/cancel_board.h"

#include <gtest/gtest.h>

#include <thread>

namespace baton {
namespace {

TEST(CancelBoard, HoldsWhatWasAddedUntilTheLoopHasTakenIt) {
  CancelBoard board;
  EXPECT_EQ(board.additions(), 0);
  board.Add(7);
  EXPECT_EQ(board.additions(), 1);
  EXPECT_TRUE(board.Contains(7));
  EXPECT_FALSE(board.Contains(8));
  board.Remove(7);
  EXPECT_FALSE(board.Contains(7));
  EXPECT_EQ(board.additions(), 1);
}

TEST(CancelBoard, WhoSeesAnAdditionFindsIt) {
  constexpr RequestHandle kCount = 1000;
  CancelBoard board;
  std::thread adder([&] {
    for (RequestHandle handle = 1; handle <= kCount; ++handle) board.Add(handle);
  });
  for (uint64_t seen = 0; seen < kCount;) {
    seen = board.additions();
    if (seen == 0) continue;
    EXPECT_TRUE(board.Contains(seen));
  }
  adder.join();
}

}  // namespace
}  // namespace baton
