#include "router/failure_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr WorkerNumber kA{1};
constexpr WorkerNumber kB{2};

WorkerRecord Record(WorkerNumber number) {
  WorkerRecord record;
  record.number = number;
  record.report.epoch = Epoch(number.value() + 10);
  record.report.address = "host:" + std::to_string(number.value());
  return record;
}

class Call final : public SilenceListener {
 public:
  void OnWorkerSilent(WorkerNumber) override {}
};

TEST(FailureDetector, AWorkerIsSilentOnceItHasAnsweredNoneOfThreeProbes) {
  FailureDetector failure_detector;
  const std::vector<WorkerRecord> both = {Record(kA), Record(kB)};
  EXPECT_THAT(failure_detector.Round(both), SizeIs(2));
  for (int32_t missed = 1; missed <= FailureDetector::kMissedProbes; ++missed) {
    EXPECT_THAT(failure_detector.Silent(), IsEmpty());
    failure_detector.OnAnswer(kB);
    EXPECT_THAT(failure_detector.Round(both), SizeIs(2)) << "silent workers are probed too";
  }
  EXPECT_THAT(failure_detector.Silent(), UnorderedElementsAre(kA));
  failure_detector.OnAnswer(kA);
  EXPECT_THAT(failure_detector.Silent(), UnorderedElementsAre(kA))
      << "the answer counts from the next round";
  failure_detector.Round(both);
  EXPECT_THAT(failure_detector.Silent(), IsEmpty());
}

TEST(FailureDetector, OneAnswerAmongLostProbesIsEnough) {
  FailureDetector failure_detector;
  for (int round = 0; round < 20; ++round) {
    failure_detector.Round({Record(kA)});
    if (round % FailureDetector::kMissedProbes == 0) failure_detector.OnAnswer(kA);
    EXPECT_THAT(failure_detector.Silent(), IsEmpty());
  }
}

TEST(FailureDetector, ANewWorkerIsNotBlamedForProbesThatItWasNotSent) {
  FailureDetector failure_detector;
  for (int round = 0; round < 10; ++round) failure_detector.Round({});
  failure_detector.Round({Record(kA)});
  EXPECT_THAT(failure_detector.Silent(), IsEmpty());
}

TEST(FailureDetector, AWorkerThatLeftIsProbedWhileCallsRunThere) {
  FailureDetector failure_detector;
  failure_detector.Round({Record(kA)});
  const auto call = std::make_shared<Call>();
  failure_detector.Attach({kA, Epoch(11), "host:1"}, call);
  failure_detector.Attach({kA, Epoch(11), "host:1"}, call);  // a second attempt
  for (int32_t i = 0; i < FailureDetector::kMissedProbes; ++i)
    EXPECT_THAT(failure_detector.Round({}), SizeIs(1));
  EXPECT_THAT(failure_detector.Silent(), UnorderedElementsAre(kA));
  EXPECT_THAT(failure_detector.ListenersOf(kA), UnorderedElementsAre(call));
  failure_detector.Detach(kA, call.get());
  EXPECT_THAT(failure_detector.ListenersOf(kA), SizeIs(1));
  failure_detector.Detach(kA, call.get());
  EXPECT_THAT(failure_detector.ListenersOf(kA), IsEmpty());
  EXPECT_THAT(failure_detector.Round({}), IsEmpty());
  EXPECT_THAT(failure_detector.Silent(), IsEmpty());
}

TEST(FailureDetector, DoesNotKeepAnEndedCallAlive) {
  FailureDetector failure_detector;
  auto call = std::make_shared<Call>();
  failure_detector.Attach({kA, Epoch(11), "host:1"}, call);
  EXPECT_EQ(call.use_count(), 1);
  call.reset();
  EXPECT_THAT(failure_detector.ListenersOf(kA), IsEmpty());
}

}  // namespace
}  // namespace baton
