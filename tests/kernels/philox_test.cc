#include "kernels/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace baton {
namespace {

using ::testing::ElementsAre;

// Known answers published with Random123 (kat_vectors).
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(
      Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Philox, EveryPartOfTheKeyChangesTheDraw) {
  const DrawKey keys[] = {{0, 0, 0}, {1, 0, 0}, {uint64_t{1} << 32, 0, 0},
                          {0, 1, 0}, {0, 0, 1}, {0, 0, uint64_t{1} << 32}};
  std::set<uint64_t> draws;
  for (const DrawKey& key : keys) draws.insert(RandomBits(key));
  EXPECT_EQ(draws.size(), std::size(keys));
  EXPECT_EQ(RandomBits({0, 0, 0}), 0xe169c58d6627e8d5u);
}

}  // namespace
}  // namespace baton
