#include "cache/block_units.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace baton {
namespace {

std::vector<BlockId> Ids(int32_t begin, int32_t count) {
  std::vector<BlockId> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(BlockId(begin + i));
  return ids;
}

// Tokens, and some units that need the upper half.
std::vector<CacheUnit> RandomUnits(std::mt19937_64& random, size_t count, int one_wide_in) {
  std::vector<CacheUnit> units(count);
  for (CacheUnit& unit : units) {
    unit = random() % 50'000;
    if (one_wide_in > 0 && random() % one_wide_in == 0) unit |= (1 + random() % 9) << 32;
  }
  return units;
}

TEST(BlockUnits, EqualSeesEachUnitAndEachHalfOfIt) {
  for (const int32_t block_size : {1, 2, 16, 64}) {
    for (const int one_wide_in : {0, 1, 40}) {
      const uint64_t seed = 100 * block_size + one_wide_in;
      SCOPED_TRACE(seed);
      std::mt19937_64 random(seed);
      BlockUnits stored(block_size, 12);
      std::vector<CacheUnit> units = RandomUnits(random, size_t(7) * block_size, one_wide_in);
      stored.Write(Ids(3, 7), units);
      EXPECT_TRUE(stored.Equal(BlockId(3), units));
      for (size_t i = 0; i < units.size(); ++i) {
        for (const CacheUnit bit : {CacheUnit{1}, CacheUnit{1} << 31, CacheUnit{1} << 63}) {
          units[i] ^= bit;
          EXPECT_FALSE(stored.Equal(BlockId(3), units)) << "unit " << i << " bit " << bit;
          units[i] ^= bit;
        }
      }
    }
  }
}

TEST(BlockUnits, ABlockWrittenAgainForgetsItsUpperHalves) {
  BlockUnits stored(2, 2);
  const std::vector<CacheUnit> wide = {CacheUnit{7} << 40, 5}, plain = {0, 5};
  stored.Write(Ids(1, 1), wide);
  EXPECT_FALSE(stored.Equal(BlockId(1), plain));
  stored.Write(Ids(1, 1), plain);
  EXPECT_TRUE(stored.Equal(BlockId(1), plain));
  EXPECT_FALSE(stored.Equal(BlockId(1), wide));
  EXPECT_EQ(stored.At(BlockId(1), 0), 0u);
}

TEST(BlockUnits, ReadGivesBackWhatWasWritten) {
  std::mt19937_64 random(1);
  BlockUnits stored(16, 8);
  const std::vector<CacheUnit> units = RandomUnits(random, 48, 20);
  stored.Write(std::vector<BlockId>{BlockId(5), BlockId(1), BlockId(6)}, units);
  const int32_t blocks[] = {5, 1, 6};
  for (int32_t i = 0; i < 3; ++i) {
    std::vector<CacheUnit> read(12);
    stored.Read(BlockId(blocks[i]), 4, read);
    for (int32_t j = 0; j < 12; ++j) {
      EXPECT_EQ(read[j], units[16 * i + 4 + j]);
      EXPECT_EQ(stored.At(BlockId(blocks[i]), 4 + j), read[j]);
    }
  }
}

}  // namespace
}  // namespace baton
