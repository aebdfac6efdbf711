#include "common/byte_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace baton {
namespace {

TEST(ByteRanges, EqualsANaiveSet) {
  constexpr size_t kBytes = 60;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ByteRanges ranges;
    std::array<bool, kBytes> naive{};
    for (int step = 0; step < 60; ++step) {
      const size_t begin = random() % kBytes;
      const size_t end = begin + random() % (kBytes - begin + 1);
      if (random() % 2 == 0) {
        ranges.Add(begin, end);
        for (size_t at = begin; at < end; ++at) naive[at] = true;
      } else {
        ranges.Remove(begin, end);
        for (size_t at = begin; at < end; ++at) naive[at] = false;
      }
      for (size_t at = 0; at < kBytes; ++at) EXPECT_EQ(ranges.Overlaps(at, at + 1), naive[at]);
      std::array<bool, kBytes> missing{};
      ranges.ForEachMissing(begin, end, [&](size_t from, size_t to) {
        EXPECT_LT(from, to);
        for (size_t at = from; at < to; ++at) missing[at] = true;
      });
      for (size_t at = 0; at < kBytes; ++at) {
        EXPECT_EQ(missing[at], at >= begin && at < end && !naive[at]) << at;
      }
      EXPECT_EQ(ranges.CountMissing(begin, end),
                static_cast<size_t>(std::count(missing.begin(), missing.end(), true)));
      EXPECT_EQ(ranges.Overlaps(begin, end), std::any_of(naive.begin() + begin, naive.begin() + end,
                                                         [](bool in) { return in; }));
    }
  }
}

}  // namespace
}  // namespace baton
