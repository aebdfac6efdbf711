#include "worker_rpc/freed_blocks.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

EngineStatus StatusWith(int32_t owned, int32_t step, int64_t failures) {
  EngineStatus status;
  status.cache.blocks.owned = owned;
  status.cache.blocks.step = step;
  status.failures = failures;
  return status;
}

TEST(FreedBlocks, ChangeWhenTheLastBlockIsGivenBack) {
  FreedBlocks freed;
  EXPECT_FALSE(freed.Changed(StatusWith(0, 0, 0))) << "nothing was in use";
  EXPECT_FALSE(freed.Changed(StatusWith(8, 0, 0)));
  EXPECT_FALSE(freed.Changed(StatusWith(4, 0, 0))) << "heartbeats are soon enough for a busy pool";
  EXPECT_FALSE(freed.Changed(StatusWith(0, 4, 0))) << "a step uses the last blocks";
  EXPECT_TRUE(freed.Changed(StatusWith(0, 0, 0)));
  EXPECT_FALSE(freed.Changed(StatusWith(0, 0, 0))) << "only once";
}

TEST(FreedBlocks, ChangeWhenARequestEndsEarly) {
  FreedBlocks freed;
  EXPECT_FALSE(freed.Changed(StatusWith(8, 0, 0)));
  EXPECT_TRUE(freed.Changed(StatusWith(4, 0, 1))) << "others still use blocks";
  EXPECT_FALSE(freed.Changed(StatusWith(4, 0, 1)));
}

}  // namespace
}  // namespace baton
