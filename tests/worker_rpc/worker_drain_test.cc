#include "worker_rpc/worker_drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;

class LoggingWorker final : public DrainingWorker {
 public:
  void ReportDraining() override { log.emplace_back("report"); }
  void LeaveRouters(std::function<void()> done) override {
    log.emplace_back("leave");
    next = std::move(done);
  }
  void AwaitDelay(int64_t delay_ms, std::function<void()> done) override {
    log.push_back("delay " + std::to_string(delay_ms));
    next = std::move(done);
  }
  void RefuseCalls() override { log.emplace_back("refuse"); }
  void AwaitCalls(int64_t most_ms, std::function<void()> done) override {
    log.push_back("await " + std::to_string(most_ms));
    next = std::move(done);
  }
  void CutOffCalls() override { log.emplace_back("cut off"); }

  std::vector<std::string> log;
  std::function<void()> next;
};

TEST(WorkerDrain, EachStepBeginsWhenThePreviousOneHasEnded) {
  LoggingWorker worker;
  Drain(worker, {.delay_ms = 0, .drain_ms = 30'000}, [&] { worker.log.emplace_back("drained"); });
  EXPECT_THAT(worker.log, ElementsAre("report", "leave"));
  worker.log.clear();
  std::exchange(worker.next, nullptr)();
  EXPECT_THAT(worker.log, ElementsAre("refuse", "await 30000"));
  worker.log.clear();
  std::exchange(worker.next, nullptr)();
  EXPECT_THAT(worker.log, ElementsAre("cut off", "drained"));
  EXPECT_EQ(worker.next, nullptr);
}

TEST(WorkerDrain, CallsAreRefusedOnlyAfterTheShutdownDelay) {
  LoggingWorker worker;
  Drain(worker, {.delay_ms = 700, .drain_ms = 30'000}, [&] { worker.log.emplace_back("drained"); });
  worker.log.clear();
  std::exchange(worker.next, nullptr)();
  EXPECT_THAT(worker.log, ElementsAre("delay 700"));
  worker.log.clear();
  std::exchange(worker.next, nullptr)();
  EXPECT_THAT(worker.log, ElementsAre("refuse", "await 30000"));
}

}  // namespace
}  // namespace baton
