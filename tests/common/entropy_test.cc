#include "common/entropy.h"

#include <gtest/gtest.h>

#include <set>

namespace baton {
namespace {

TEST(Entropy, EveryDrawDiffersAndEveryBitVaries) {
  std::set<uint64_t> draws;
  uint64_t ever_set = 0;
  uint64_t always_set = ~uint64_t{0};
  for (int i = 0; i < 200; ++i) {
    const uint64_t bits = EntropyBits();
    EXPECT_TRUE(draws.insert(bits).second);
    ever_set |= bits;
    always_set &= bits;
  }
  EXPECT_EQ(ever_set, ~uint64_t{0});
  EXPECT_EQ(always_set, 0u);
}

}  // namespace
}  // namespace baton
