#include "router/worker_watch.h"

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

TEST(WorkerWatch, AWorkerIsSilentOnceItHasAnsweredNoneOfThreeProbes) {
  WorkerWatch watch;
  const std::vector<WorkerRecord> both = {Record(kA), Record(kB)};
  EXPECT_THAT(watch.Round(both), SizeIs(2));
  for (int32_t missed = 1; missed <= WorkerWatch::kMissedProbes; ++missed) {
    EXPECT_THAT(watch.Silent(), IsEmpty());
    watch.OnAnswer(kB);
    EXPECT_THAT(watch.Round(both), SizeIs(2)) << "silent workers are probed too";
  }
  EXPECT_THAT(watch.Silent(), UnorderedElementsAre(kA));
  watch.OnAnswer(kA);
  EXPECT_THAT(watch.Silent(), UnorderedElementsAre(kA)) << "told with the next round";
  watch.Round(both);
  EXPECT_THAT(watch.Silent(), IsEmpty());
}

TEST(WorkerWatch, OneAnswerAmongLostProbesIsEnough) {
  WorkerWatch watch;
  for (int round = 0; round < 20; ++round) {
    watch.Round({Record(kA)});
    if (round % WorkerWatch::kMissedProbes == 0) watch.OnAnswer(kA);
    EXPECT_THAT(watch.Silent(), IsEmpty());
  }
}

TEST(WorkerWatch, ANewWorkerIsNotBlamedForProbesThatItWasNotSent) {
  WorkerWatch watch;
  for (int round = 0; round < 10; ++round) watch.Round({});
  watch.Round({Record(kA)});
  EXPECT_THAT(watch.Silent(), IsEmpty());
}

TEST(WorkerWatch, AWorkerThatLeftIsProbedWhileCallsRunThere) {
  WorkerWatch watch;
  watch.Round({Record(kA)});
  const auto call = std::make_shared<Call>();
  watch.Attach({kA, Epoch(11), "host:1"}, call);
  watch.Attach({kA, Epoch(11), "host:1"}, call);  // a second attempt
  for (int32_t i = 0; i < WorkerWatch::kMissedProbes; ++i) EXPECT_THAT(watch.Round({}), SizeIs(1));
  EXPECT_THAT(watch.Silent(), UnorderedElementsAre(kA));
  EXPECT_THAT(watch.ListenersOf(kA), UnorderedElementsAre(call));
  watch.Detach(kA, call.get());
  EXPECT_THAT(watch.ListenersOf(kA), SizeIs(1));
  watch.Detach(kA, call.get());
  EXPECT_THAT(watch.ListenersOf(kA), IsEmpty());
  EXPECT_THAT(watch.Round({}), IsEmpty());
  EXPECT_THAT(watch.Silent(), IsEmpty());
}

TEST(WorkerWatch, ACallThatIsGoneIsNotHeldAlive) {
  WorkerWatch watch;
  auto call = std::make_shared<Call>();
  watch.Attach({kA, Epoch(11), "host:1"}, call);
  EXPECT_EQ(call.use_count(), 1);
  call.reset();
  EXPECT_THAT(watch.ListenersOf(kA), IsEmpty());
}

}  // namespace
}  // namespace baton
