#include "worker_rpc/role_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecondUs = 1'000'000;

TEST(RoleLease, OnePlannerAtATimeMayChangeTheRole) {
  RoleLease lease;
  EXPECT_TRUE(lease.Take("router-a", 5000, kSecondUs).ok());
  const absl::Status refused = lease.Take("router-b", 5000, 2 * kSecondUs);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("router-a"), HasSubstr("4000 ms")));
  EXPECT_TRUE(lease.Take("router-a", 5000, 5 * kSecondUs).ok()) << "its holder renews it";
  EXPECT_FALSE(lease.Take("router-b", 5000, 10 * kSecondUs - 1).ok());
  EXPECT_TRUE(lease.Take("router-b", 5000, 10 * kSecondUs).ok()) << "it has ended";
  EXPECT_FALSE(lease.Take("router-a", 5000, 11 * kSecondUs).ok());
  EXPECT_TRUE(lease.Take("router-b", 0, 11 * kSecondUs).ok()) << "given back";
  EXPECT_TRUE(lease.Take("router-a", 5000, 11 * kSecondUs).ok());
}

TEST(RoleLease, AnOperatorIsAlwaysObeyedAndKeepsPlannersAway) {
  RoleLease lease;
  EXPECT_TRUE(lease.Take("router-a", 5000, kSecondUs).ok());
  EXPECT_TRUE(lease.Take("", 60'000, kSecondUs).ok());
  const absl::Status refused = lease.Take("router-a", 5000, 2 * kSecondUs);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("operator"), HasSubstr("59000 ms")));
  EXPECT_TRUE(lease.Take("", 0, 2 * kSecondUs).ok());
  EXPECT_TRUE(lease.Take("router-a", 5000, 2 * kSecondUs).ok());
}

TEST(RoleLease, NamesAndTimesHaveLimits) {
  RoleLease lease;
  EXPECT_TRUE(absl::IsInvalidArgument(lease.Take(std::string(257, 'x'), 1, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(lease.Take("a", -1, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(lease.Take("a", RoleLease::kLongestMs + 1, 0)));
  EXPECT_TRUE(lease.Take(std::string(256, 'x'), RoleLease::kLongestMs, 0).ok());
}

}  // namespace
}  // namespace baton
