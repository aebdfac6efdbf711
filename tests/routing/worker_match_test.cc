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

}  // namespace
}  // namespace baton
