#include "router/load_shedder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/error_details.h"

namespace baton {
namespace {

constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

TEST(LoadShedder, RefusesARequestThatWouldWaitMoreThanHalfOfItsTime) {
  LoadShedder line;
  for (size_t i = 0; i < LoadShedder::kAlwaysAdmitted; ++i) {
    line.Join(1000 + static_cast<int64_t>(i));
  }
  EXPECT_TRUE(line.MayJoin(6000, 10'000).ok());
  const absl::Status refused = line.MayJoin(6'000'000, 10'000'000);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr("16 requests wait ahead of this one, the first for 5999 ms"));
  EXPECT_TRUE(line.MayJoin(6'000'000, 12'000'000).ok());
  EXPECT_TRUE(line.MayJoin(6'000'000, kForEver).ok());
  EXPECT_FALSE(line.MayJoin(6'000'000, -5).ok()) << "its deadline has passed";
}

TEST(LoadShedder, TheOldestRequestCountsUntilItLeaves) {
  LoadShedder line;
  line.Join(0);
  for (size_t i = 0; i < LoadShedder::kAlwaysAdmitted; ++i) line.Join(900);
  EXPECT_FALSE(line.MayJoin(1000, 1000).ok());
  line.GaveUp({.joined_us = 0}, 1000);
  EXPECT_TRUE(line.MayJoin(1000, 1000).ok());
}

TEST(LoadShedder, AFewRequestsAreAlwaysAdmitted) {
  LoadShedder line;
  for (size_t i = 1; i < LoadShedder::kAlwaysAdmitted; ++i) line.Join(0);
  EXPECT_TRUE(line.MayJoin(1'000'000, 1).ok());
  line.Join(0);
  EXPECT_FALSE(line.MayJoin(1'000'000, 1).ok());
  line.GaveUp({.joined_us = 77}, 1);  // never joined
  EXPECT_EQ(line.size(), LoadShedder::kAlwaysAdmitted);
  line.GaveUp({.joined_us = 0}, 1);
  EXPECT_TRUE(line.MayJoin(1'000'000, 1).ok());
}

// Returns a line of `size` requests with a known pace: one first token every 100 ms.
LoadShedder PacedLine(size_t size) {
  LoadShedder line;
  int64_t now_us = 0;
  for (size_t i = 0; i < LoadShedder::kAlwaysAdmitted; ++i) line.Join(now_us);
  for (size_t i = 0; i < LoadShedder::kFewestPaced; ++i) {
    now_us += 100'000;
    line.Join(now_us);
    line.Served({.joined_us = i == 0 ? 0 : now_us - 100'000}, now_us);
  }
  while (line.size() < size) line.Join(now_us);
  return line;
}

TEST(LoadShedder, UsesTheQueueLengthOnceTheServiceRateIsKnown) {
  const LoadShedder line = PacedLine(50);
  const absl::Status refused = line.MayJoin(1'600'000, 9'000'000);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AllOf(::testing::HasSubstr("50 requests wait"),
                               ::testing::HasSubstr("This one would wait about 5000 ms")));
  EXPECT_TRUE(line.MayJoin(1'600'000, 11'000'000).ok());
  // 50 requests at one each 100 ms take 5,000 ms, and half of the time is 4,500 ms.
  EXPECT_EQ(RetryAfterMs(refused), 500);
}

TEST(LoadShedder, IdleTimeDoesNotCountForTheServiceRate) {
  LoadShedder line = PacedLine(LoadShedder::kAlwaysAdmitted);
  line.Served({.joined_us = 0}, 1'700'000);  // the line has dissolved
  const int64_t later_us = 900'000'000;
  while (line.size() < 40) line.Join(later_us);
  line.Served({.joined_us = later_us}, later_us + 100'000);
  EXPECT_TRUE(line.MayJoin(later_us + 100'000, 8'500'000).ok());
  EXPECT_FALSE(line.MayJoin(later_us + 100'000, 7'000'000).ok());
}

TEST(LoadShedder, CancelledRequestsDoNotCountForTheServiceRate) {
  LoadShedder line;
  for (int64_t i = 0; i < 100; ++i) line.Join(i);
  for (int64_t i = 0; i < 60; ++i) line.GaveUp({.joined_us = i}, 100);
  EXPECT_TRUE(line.MayJoin(1000, 2000).ok()) << "the oldest request has waited 0.94 ms";
  line.Served({.joined_us = 60}, 1'000'000);
  EXPECT_FALSE(line.MayJoin(1'000'000, 1'000'000).ok())
      << "the oldest request has waited one second";
}

TEST(LoadShedder, OnlyRequestsOfAtLeastEqualPriorityCountAsAhead) {
  LoadShedder line = PacedLine(50);  // of priority 0
  EXPECT_FALSE(line.MayJoin(1'600'000, 9'000'000, 0).ok());
  EXPECT_FALSE(line.MayJoin(1'600'000, 9'000'000, -3).ok());
  EXPECT_TRUE(line.MayJoin(1'600'000, 1, 1).ok()) << "no request is ahead of it";
  std::vector<LoadShedder::Place> high;
  for (int i = 0; i < 20; ++i) high.push_back(line.Join(1'600'000, 7));
  const absl::Status refused = line.MayJoin(1'600'000, 3'000'000, 7);
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AllOf(
                  ::testing::HasSubstr("20 requests wait ahead of this one, the first for 0 ms"),
                  ::testing::HasSubstr("This one would wait about 2000 ms")));
  EXPECT_TRUE(line.MayJoin(1'600'000, 4'000'000, 5).ok());
  EXPECT_THAT(std::string(line.MayJoin(1'600'000, 9'000'000, 0).message()),
              ::testing::HasSubstr("70 requests wait ahead of this one"));
  for (const LoadShedder::Place& place : high) line.GaveUp(place, 1'600'000);
  EXPECT_TRUE(line.MayJoin(1'600'000, 1, 7).ok());
  EXPECT_EQ(line.size(), 50u);
}

TEST(LoadShedder, PrioritiesOutOfRangeCountAsTheNearest) {
  LoadShedder line;
  for (size_t i = 0; i < LoadShedder::kAlwaysAdmitted; ++i) {
    EXPECT_EQ(line.Join(0, std::numeric_limits<int32_t>::max()).priority, 100);
  }
  EXPECT_FALSE(line.MayJoin(1'000'000, 1, 100).ok());
  EXPECT_FALSE(line.MayJoin(1'000'000, 1, std::numeric_limits<int32_t>::min()).ok());
  EXPECT_EQ(line.Join(0, std::numeric_limits<int32_t>::min()).priority, -100);
}

TEST(LoadShedder, WhereTenantsTakeTurnsTheCallerKnowsHowManyAreAheadAtMost) {
  const LoadShedder line = PacedLine(40);
  const int64_t now_us = 100'000'000;
  EXPECT_FALSE(line.MayJoin(now_us, 4'000'000, 0).ok());
  EXPECT_FALSE(line.MayJoin(now_us, 4'000'000, 0, 1000).ok()) << "no more than there are";
  EXPECT_TRUE(line.MayJoin(now_us, 1, 0, LoadShedder::kAlwaysAdmitted - 1).ok());
  const absl::Status refused = line.MayJoin(now_us, 1, 0, 20);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("20 requests wait ahead"));
}

}  // namespace
}  // namespace baton
