#include "worker_rpc/count_rate.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

TEST(CountRate, TheFirstSampleHasNoRate) { EXPECT_EQ(CountRate().Sample(7, 1000), 0); }

TEST(CountRate, IsTheGrowthPerSecond) {
  CountRate rate;
  rate.Sample(0, 100);
  EXPECT_DOUBLE_EQ(rate.Sample(2 * kSecondUs, 150), 25);
}

TEST(CountRate, ForgetsWhatIsOlderThanTheWindow) {
  CountRate rate;
  int64_t count = 0;
  for (int second = 0; second <= 10; ++second) rate.Sample(second * kSecondUs, count += 1000);
  for (int second = 11; second <= 15; ++second) rate.Sample(second * kSecondUs, count += 2);
  EXPECT_DOUBLE_EQ(rate.Sample(16 * kSecondUs, count), 1.6) << "from 11 s on: 8 in 5 s";
}

TEST(CountRate, SpansALongPauseBetweenSamples) {
  CountRate rate;
  rate.Sample(0, 0);
  EXPECT_DOUBLE_EQ(rate.Sample(100 * kSecondUs, 1000), 10);
  EXPECT_DOUBLE_EQ(rate.Sample(101 * kSecondUs, 1000), 1000.0 / 101);
}

TEST(CountRate, ManySamplesInAMomentDoNotShortenTheWindow) {
  CountRate rate;
  rate.Sample(0, 0);
  for (int64_t us = 1; us <= 1000; ++us) rate.Sample(us, us);
  EXPECT_DOUBLE_EQ(rate.Sample(kSecondUs, 2000), 2000);
}

}  // namespace
}  // namespace baton
