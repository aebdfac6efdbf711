#include "router/probe_rounds.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/clock.h"
#include "tests/router/worker_reports.h"

namespace baton {
namespace {

class Listener final : public SilenceListener {
 public:
  void OnWorkerSilent(WorkerNumber worker) override { silent.push_back(worker); }
  std::vector<WorkerNumber> silent;
};

class ProbeRoundsTest : public ::testing::Test {
 protected:
  ProbeRoundsTest() {
    for (const char* id : {"d1", "d2"}) {
      EXPECT_TRUE(core_.Heartbeat(Report(id, WorkerRole::kDecode)).ok());
    }
    const WorkerRecord worker = core_.Workers().front();
    number_ = worker.number;
    detector_.Attach({number_, worker.report.epoch, worker.report.address}, listener_);
  }
  // Probes of the first worker end like this. The other worker answers.
  void Run(const absl::Status& answer) {
    rounds_.Run([&](const FailureDetector::Target& target) {
      ++probes_;
      rounds_.OnAnswer(target.number, target.number == number_ ? answer : absl::OkStatus());
    });
  }

  ManualClock clock_;
  RouterCore core_{RouterOptions(), &clock_};
  FailureDetector detector_;
  ProbeRounds rounds_{&core_, &detector_, /*silence_ms=*/900};
  std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
  WorkerNumber number_{0};
  int probes_ = 0;
};

TEST_F(ProbeRoundsTest, ThreeRoundsFitInTheSilenceTime) {
  EXPECT_EQ(rounds_.interval_us(), 900'000 / FailureDetector::kRoundsToSilence);
}

TEST_F(ProbeRoundsTest, AWorkerThatAnswersOrIsTooOldForPingIsNeverSilent) {
  for (const absl::Status& answer : {absl::OkStatus(), absl::UnimplementedError("old")}) {
    for (int round = 0; round < 10; ++round) Run(answer);
  }
  EXPECT_GT(probes_, 10);
  EXPECT_TRUE(listener_->silent.empty());
}

TEST_F(ProbeRoundsTest, ItsCallsAreNotifiedOfAWorkerThatDoesNotAnswerItself) {
  for (const absl::Status& answer :
       {absl::DeadlineExceededError("no answer"), absl::UnavailableError("hangs"),
        absl::FailedPreconditionError("another epoch")}) {
    listener_->silent.clear();
    for (int round = 0; round < 10; ++round) Run(answer);
    ASSERT_FALSE(listener_->silent.empty()) << answer;
    EXPECT_EQ(listener_->silent.front(), number_);
    EXPECT_TRUE(core_.Workers().front().silent);
    for (int round = 0; round < 10; ++round) Run(absl::OkStatus());
    EXPECT_FALSE(core_.Workers().front().silent);
  }
}

TEST_F(ProbeRoundsTest, AnAnswerMakesAnUnreachableWorkerReachable) {
  core_.MarkUnreachable(number_);
  rounds_.OnAnswer(number_, absl::UnavailableError("hangs"));
  EXPECT_TRUE(core_.Workers().front().unreachable);
  rounds_.OnAnswer(number_, absl::OkStatus());
  EXPECT_FALSE(core_.Workers().front().unreachable);
}

}  // namespace
}  // namespace baton
