#include "router/minute_bucket.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace baton {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

TEST(MinuteBucket, IsFullAtFirstAndFillsEvenly) {
  MinuteBucket bucket;
  int64_t now_us = 5 * kSecondUs;
  EXPECT_EQ(bucket.WaitUs(60, 60, now_us), 0);
  bucket.Take(60);
  EXPECT_EQ(bucket.WaitUs(1, 60, now_us), kSecondUs);
  EXPECT_EQ(bucket.WaitUs(30, 60, now_us), 30 * kSecondUs);
  now_us += kSecondUs;
  EXPECT_EQ(bucket.WaitUs(1, 60, now_us), 0);
  EXPECT_EQ(bucket.WaitUs(2, 60, now_us), kSecondUs);
  now_us += 1000 * kSecondUs;
  EXPECT_EQ(bucket.WaitUs(60, 60, now_us), 0);
  bucket.Take(60);
  EXPECT_EQ(bucket.WaitUs(1, 60, now_us), kSecondUs) << "it holds one minute's amount at most";
}

TEST(MinuteBucket, MoreThanAMinutesAmountIsGrantedFromAFullBucketAndPaidOffLater) {
  MinuteBucket bucket;
  EXPECT_EQ(bucket.WaitUs(180, 60, 0), 0);
  bucket.Take(180);
  EXPECT_EQ(bucket.WaitUs(1, 60, 0), 121 * kSecondUs);
  EXPECT_EQ(bucket.WaitUs(180, 60, 0), 180 * kSecondUs);
  EXPECT_EQ(bucket.WaitUs(180, 60, 180 * kSecondUs), 0);
}

TEST(MinuteBucket, WhatWasNotUsedGoesBack) {
  MinuteBucket bucket;
  EXPECT_EQ(bucket.WaitUs(50, 60, 0), 0);
  bucket.Take(50);
  bucket.Give(45, 60);
  EXPECT_EQ(bucket.WaitUs(55, 60, 0), 0);
  bucket.Give(1000, 60);
  EXPECT_GT(bucket.WaitUs(61, 61, 0), 0) << "never more than one minute's amount";
}

TEST(MinuteBucket, ARequestThatWaitsAsLongAsToldIsServed) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  MinuteBucket bucket;
  const double per_minute = 1 + static_cast<double>(random() % 1000);
  int64_t now_us = 0;
  double taken = 0;
  for (int i = 0; i < 2000; ++i) {
    const double amount = static_cast<double>(random() % static_cast<uint64_t>(per_minute + 1));
    now_us += bucket.WaitUs(amount, per_minute, now_us);
    ASSERT_EQ(bucket.WaitUs(amount, per_minute, now_us), 0);
    bucket.Take(amount);
    taken += amount;
    ASSERT_LE(taken, per_minute * (1 + static_cast<double>(now_us) / 60e6) + 1e-3);
  }
}

}  // namespace
}  // namespace baton
