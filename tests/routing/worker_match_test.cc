#include "routing/worker_match.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

WorkerReport Report() {
  WorkerReport report;
  report.fingerprint = "f";
  report.backend = "cpu";
  report.protocol = {.oldest = 5, .newest = 6};
  return report;
}

TEST(WorkerMatch, EqualWorkersMatchForEverything) {
  EXPECT_TRUE(SameKind(Report(), Report()));
  EXPECT_TRUE(SameAnswers(Report(), Report()));
  EXPECT_TRUE(MayHandOver(Report(), Report()));
}

TEST(WorkerMatch, AnotherFingerprintOrAnUnconfirmedBackendMatchesForNothing) {
  WorkerReport other = Report();
  other.fingerprint = "g";
  EXPECT_FALSE(SameKind(Report(), other) || SameAnswers(Report(), other) ||
               MayHandOver(Report(), other));
  other = Report();
  other.backend = "cuda";
  EXPECT_FALSE(SameKind(Report(), other) || SameAnswers(Report(), other) ||
               MayHandOver(Report(), other));
}

TEST(WorkerMatch, KvNeedsACommonProtocolVersionButAnswersDoNot) {
  WorkerReport other = Report();
  other.protocol = {.oldest = 6, .newest = 7};
  EXPECT_FALSE(SameKind(Report(), other));
  EXPECT_TRUE(MayHandOver(Report(), other) && MayHandOver(other, Report()));
  other.protocol = {.oldest = 7, .newest = 8};
  EXPECT_FALSE(MayHandOver(Report(), other) || MayHandOver(other, Report()));
  EXPECT_TRUE(SameAnswers(Report(), other));
}

// The receiver refuses a sender with smaller blocks if a window may begin inside its own block.
TEST(WorkerMatch, WithSeveralKvGroupsASenderNeedsBlocksThatAreNotSmaller) {
  WorkerReport small = Report();
  small.block_size = 8;
  WorkerReport large = Report();
  large.block_size = 32;
  EXPECT_TRUE(MayHandOver(small, large) && MayHandOver(large, small)) << "with one group";
  EXPECT_TRUE(SameKind(small, large));
  small.kv_groups = large.kv_groups = 2;
  EXPECT_FALSE(MayHandOver(small, large));
  EXPECT_TRUE(MayHandOver(large, small));
  EXPECT_TRUE(MayHandOver(small, small));
  EXPECT_FALSE(SameKind(small, large)) << "what holds for one does not hold for the other";
  EXPECT_TRUE(SameAnswers(small, large) && SameAnswers(large, small));
}

}  // namespace
}  // namespace baton
