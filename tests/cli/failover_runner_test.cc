#include "cli/failover_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace baton {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// Router that ends its first runs as scripted, then answers all. It records its name in each run.
class ScriptedRouter final : public JobRunner {
 public:
  struct End {
    std::string text;  // passed on before the end
    absl::Status status;
  };

  ScriptedRouter(std::string name, std::deque<End> ends, std::vector<std::string>* asked)
      : name_(std::move(name)), ends_(std::move(ends)), asked_(asked) {}

  absl::StatusOr<std::vector<JobResult>> Run(
      const Job&, const std::function<void(std::string_view)>& on_text) override {
    asked_->push_back(name_);
    if (!ends_.empty()) {
      const End end = ends_.front();
      ends_.pop_front();
      if (on_text && !end.text.empty()) on_text(end.text);
      if (!end.status.ok()) return end.status;
    }
    JobResult result;
    result.text = name_;
    return std::vector<JobResult>{result};
  }
  absl::StatusOr<std::vector<std::string>> Pieces(const std::vector<TokenId>&) override {
    if (const absl::Status end = NextEnd(); !end.ok()) return end;
    return std::vector<std::string>{"piece of " + name_};
  }
  absl::StatusOr<SamplingDefaults> RecommendedSampling() override {
    if (const absl::Status end = NextEnd(); !end.ok()) return end;
    return SamplingDefaults{.temperature = 0.5f};
  }
  void Interrupt() override { ++interrupts_; }
  int interrupts() const { return interrupts_; }

 private:
  absl::Status NextEnd() {
    asked_->push_back(name_);
    if (ends_.empty()) return absl::OkStatus();
    const absl::Status status = ends_.front().status;
    ends_.pop_front();
    return status;
  }

  const std::string name_;
  std::deque<End> ends_;
  std::vector<std::string>* const asked_;
  std::atomic<int> interrupts_ = 0;
};

const absl::Status kGone = NotBegun(absl::UnavailableError("gone"));
const absl::Status kLost = absl::UnavailableError("lost");

class Failover : public ::testing::Test {
 protected:
  using End = ScriptedRouter::End;

  FailoverRunner Make(std::vector<std::deque<End>> ends, int32_t retries) {
    std::vector<std::unique_ptr<JobRunner>> routers;
    for (std::deque<End>& of_router : ends) {
      const std::string name(1, static_cast<char>('A' + routers.size()));
      routers.push_back(std::make_unique<ScriptedRouter>(name, std::move(of_router), &asked_));
    }
    return FailoverRunner(
        std::move(routers),
        {.retries = retries, .first_backoff = milliseconds(1), .longest_backoff = milliseconds(2)});
  }

  std::vector<std::string> asked_;
};

TEST_F(Failover, TheNextRouterAnswersAndIsAskedFirstFromThenOn) {
  FailoverRunner runner = Make({{{"", kGone}}, {}}, 0);
  EXPECT_EQ((*runner.Run(Job(), {}))[0].text, "B");
  EXPECT_EQ((*runner.Run(Job(), {}))[0].text, "B");
  EXPECT_THAT(asked_, ElementsAre("A", "B", "B"));
}

TEST_F(Failover, EveryRouterIsAskedOnceARound) {
  FailoverRunner runner =
      Make({{{"", kGone}, {"", kGone}}, {{"", kGone}, {"", kGone}, {"", kGone}}}, 1);
  const absl::Status status = runner.Run(Job(), {}).status();
  EXPECT_TRUE(IsNotBegun(status));
  EXPECT_EQ(status.message(), "gone");
  EXPECT_THAT(asked_, ElementsAre("A", "B", "A", "B"));
}

TEST_F(Failover, WithRetriesOneRouterIsAskedAgain) {
  FailoverRunner runner = Make({{{"", kGone}, {"", kLost}, {"", absl::CancelledError("ends")}}}, 3);
  EXPECT_TRUE(runner.Run(Job(), {}).ok());
  EXPECT_EQ(asked_.size(), 4u);
}

TEST_F(Failover, AJobThatBeganOnceIsNotReportedAsNeverBegun) {
  FailoverRunner runner = Make({{{"", kLost}, {"", kGone}}}, 1);
  const absl::Status status = runner.Run(Job(), {}).status();
  EXPECT_EQ(status.message(), "gone");
  EXPECT_FALSE(IsNotBegun(status));
}

TEST_F(Failover, OtherFailuresEndTheJob) {
  for (const absl::Status& own : {absl::InvalidArgumentError("x"), absl::DeadlineExceededError("x"),
                                  absl::ResourceExhaustedError("x"), absl::InternalError("x")}) {
    asked_.clear();
    FailoverRunner runner = Make({{{"", own}}, {}}, 3);
    EXPECT_EQ(runner.Run(Job(), {}).status(), own);
    EXPECT_THAT(asked_, ElementsAre("A"));
  }
}

TEST_F(Failover, AnAnswerThatWasPassedOnIsNotRepeated) {
  std::string passed;
  FailoverRunner runner = Make({{{"half", kLost}}, {}}, 3);
  const auto on_text = [&passed](std::string_view text) { passed += text; };
  EXPECT_EQ(runner.Run(Job(), on_text).status(), kLost);
  EXPECT_EQ(passed, "half");
  EXPECT_THAT(asked_, ElementsAre("A"));
}

TEST_F(Failover, AnAnswerThatWasNotPassedOnIsRepeatedWhole) {
  FailoverRunner runner = Make({{{"half", kLost}}, {}}, 0);
  const auto results = runner.Run(Job(), {});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].text, "B");
}

TEST_F(Failover, PiecesComeFromTheFirstRouterThatAnswers) {
  FailoverRunner runner = Make({{{"", kGone}}, {{"", kLost}}, {}}, 0);
  EXPECT_THAT(*runner.Pieces({1}), ElementsAre("piece of C"));
  EXPECT_THAT(asked_, ElementsAre("A", "B", "C"));
}

TEST_F(Failover, RecommendedSamplingIsRepeatedAsAJobIs) {
  FailoverRunner runner = Make({{{"", kGone}, {"", kGone}}, {{"", kLost}}}, 1);
  EXPECT_EQ(*runner.RecommendedSampling(), SamplingDefaults{.temperature = 0.5f});
  EXPECT_THAT(asked_, ElementsAre("A", "B", "A", "B"));
}

TEST_F(Failover, ARouterThatRefusesRecommendedSamplingIsTheLastAsked) {
  FailoverRunner runner = Make({{{"", absl::UnimplementedError("x")}}, {}}, 3);
  EXPECT_EQ(runner.RecommendedSampling().status(), absl::UnimplementedError("x"));
  EXPECT_THAT(asked_, ElementsAre("A"));
}

TEST_F(Failover, AnInterruptEndsTheWaitAndReachesEveryRouter) {
  std::vector<std::unique_ptr<JobRunner>> routers;
  std::vector<ScriptedRouter*> scripted;
  for (int i = 0; i < 2; ++i) {
    auto router =
        std::make_unique<ScriptedRouter>("A", std::deque<End>(100, End{"", kGone}), &asked_);
    scripted.push_back(router.get());
    routers.push_back(std::move(router));
  }
  FailoverRunner runner(std::move(routers), {.retries = 1000,
                                             .first_backoff = std::chrono::hours(1),
                                             .longest_backoff = std::chrono::hours(1)});
  std::thread interrupter([&runner] {
    std::this_thread::sleep_for(milliseconds(20));
    runner.Interrupt();
  });
  EXPECT_TRUE(IsNotBegun(runner.Run(Job(), {}).status()));
  interrupter.join();
  EXPECT_LE(asked_.size(), 2u);
  for (const ScriptedRouter* router : scripted) EXPECT_EQ(router->interrupts(), 1);
}

}  // namespace
}  // namespace baton
