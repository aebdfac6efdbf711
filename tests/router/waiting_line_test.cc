#include "router/waiting_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace baton {
namespace {

constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

TEST(WaitingLine, RefusesWhoWouldSpendMoreThanHalfOfItsTimeWaiting) {
  WaitingLine line;
  for (size_t i = 0; i < WaitingLine::kAlwaysAdmitted; ++i) {
    line.Join(1000 + static_cast<int64_t>(i));
  }
  EXPECT_TRUE(line.MayJoin(6000, 10'000).ok());
  const absl::Status refused = line.MayJoin(6'000'000, 10'000'000);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr("16 requests wait, the first for 5999 ms"));
  EXPECT_TRUE(line.MayJoin(6'000'000, 12'000'000).ok());
  EXPECT_TRUE(line.MayJoin(6'000'000, kForEver).ok());
  EXPECT_FALSE(line.MayJoin(6'000'000, -5).ok()) << "its deadline has passed";
}

TEST(WaitingLine, TheFirstCountsUntilItLeaves) {
  WaitingLine line;
  line.Join(0);
  for (size_t i = 0; i < WaitingLine::kAlwaysAdmitted; ++i) line.Join(900);
  EXPECT_FALSE(line.MayJoin(1000, 1000).ok());
  line.Leave(0);
  EXPECT_TRUE(line.MayJoin(1000, 1000).ok());
}

TEST(WaitingLine, AFewMayAlwaysWait) {
  WaitingLine line;
  for (size_t i = 1; i < WaitingLine::kAlwaysAdmitted; ++i) line.Join(0);
  EXPECT_TRUE(line.MayJoin(1'000'000, 1).ok());
  line.Join(0);
  EXPECT_FALSE(line.MayJoin(1'000'000, 1).ok());
  line.Leave(77);  // never joined
  EXPECT_EQ(line.size(), WaitingLine::kAlwaysAdmitted);
  line.Leave(0);
  EXPECT_TRUE(line.MayJoin(1'000'000, 1).ok());
}

}  // namespace
}  // namespace baton
