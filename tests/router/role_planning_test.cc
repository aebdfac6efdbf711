#include "router/role_planning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/routing/fleet.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class RolePlanningTest : public testing::Test {
 protected:
  RolePlanningTest() {
    for (const WorkerRole role : {WorkerRole::kPrefill, WorkerRole::kDecode, WorkerRole::kDecode}) {
      WorkerRecord& worker = fleet_.Add(role);
      worker.report.changes_role = true;
      worker.report.address = "host:" + worker.report.id;
      worker.report.epoch = Epoch(worker.number.value());
    }
    fleet_.workers[1].active = 1;  // so the last one is chosen
  }
  // Looks until a call is to be made, at most `most` times, with prompts for many workers.
  std::optional<RoleCall> LooksUntilCall(RolePlanning& planning, int most = 12) {
    for (int i = 0; i < most; ++i) {
      now_us_ += kLookUs;
      EXPECT_TRUE(planning.LookIsDue(now_us_));
      auto call =
          planning.Look(now_us_, fleet_.workers, {.prefill_us = 3 * kLookUs, .finished = 20});
      EXPECT_FALSE(planning.LookIsDue(now_us_ + kLookUs - 1));
      if (call) return call;
    }
    return std::nullopt;
  }

  static constexpr int64_t kPeriodMs = 10'000;
  static constexpr int64_t kLookUs = kPeriodMs * 1000 / RolePlanner::kLooks;
  Fleet fleet_;
  int64_t now_us_ = 1'000'000'000;
};

TEST_F(RolePlanningTest, OffNeverLooksAndAdviseNeverCalls) {
  const RolePlanning off({.mode = RolePlannerMode::kOff});
  EXPECT_FALSE(off.LookIsDue(now_us_));
  RolePlanning advise({.mode = RolePlannerMode::kAdvise, .period_ms = kPeriodMs});
  EXPECT_FALSE(LooksUntilCall(advise));
  ASSERT_TRUE(advise.wish().flip);
  EXPECT_EQ(DescribeFlip(*advise.wish().flip), "worker-3 prefills");
}

TEST_F(RolePlanningTest, AFlipNeedsTheAnchorsLeaseFirst) {
  RolePlanning apply({.mode = RolePlannerMode::kApply, .period_ms = kPeriodMs});
  const std::optional<RoleCall> lease = LooksUntilCall(apply);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->worker_id, "worker-1") << "the smallest id";
  EXPECT_EQ(lease->role, std::nullopt);
  EXPECT_EQ(lease->lease_ms, 3 * kPeriodMs);
  EXPECT_FALSE(LooksUntilCall(apply, 4)) << "one call at a time";
  const std::optional<RoleCall> flip = apply.OnAnswer(now_us_, absl::OkStatus());
  ASSERT_TRUE(flip);
  EXPECT_EQ(flip->worker_id, "worker-3");
  EXPECT_EQ(flip->address, "host:worker-3");
  EXPECT_EQ(flip->epoch, Epoch(3));
  EXPECT_EQ(flip->role, WorkerRole::kPrefill);
  EXPECT_EQ(flip->lease_ms, 3 * kPeriodMs);
  EXPECT_EQ(apply.flips(), 0);
  EXPECT_FALSE(apply.OnAnswer(now_us_, absl::OkStatus()));
  EXPECT_EQ(apply.flips(), 1);
  EXPECT_EQ(apply.last_flip()->worker_id, "worker-3");
  EXPECT_EQ(apply.last_flip_us(), now_us_);
  EXPECT_FALSE(LooksUntilCall(apply, RolePlanner::kLooks - 1)) << "one flip each period";
}

TEST_F(RolePlanningTest, TheAnchorItselfNeedsOneCall) {
  fleet_.workers[1].active = 0;
  fleet_.workers[2].active = 1;
  fleet_.workers[0].report.changes_role = false;  // an older worker is no anchor
  RolePlanning apply({.mode = RolePlannerMode::kApply, .period_ms = kPeriodMs});
  const std::optional<RoleCall> flip = LooksUntilCall(apply);
  ASSERT_TRUE(flip);
  EXPECT_EQ(flip->worker_id, "worker-2");
  EXPECT_EQ(flip->role, WorkerRole::kPrefill);
  EXPECT_FALSE(apply.OnAnswer(now_us_, absl::OkStatus()));
  EXPECT_EQ(apply.flips(), 1);
}

TEST_F(RolePlanningTest, ARefusalIsShownAndTriedAgain) {
  RolePlanning apply({.mode = RolePlannerMode::kApply, .period_ms = kPeriodMs});
  ASSERT_TRUE(LooksUntilCall(apply));
  EXPECT_FALSE(apply.OnAnswer(now_us_, absl::FailedPreconditionError("planner x has the lease")));
  EXPECT_THAT(apply.trouble(), HasSubstr("worker-3 prefills: not carried out: planner x"));
  EXPECT_EQ(apply.flips(), 0);
  const std::optional<RoleCall> again = LooksUntilCall(apply, 1);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->role, std::nullopt);
  ASSERT_TRUE(apply.OnAnswer(now_us_, absl::OkStatus()));
  EXPECT_FALSE(apply.OnAnswer(now_us_, absl::OkStatus()));
  EXPECT_EQ(apply.trouble(), "");
}

}  // namespace
}  // namespace baton
