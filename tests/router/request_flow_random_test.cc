// Checks the invariants of RequestFlow under random orders of events, including orders that no host
// produces.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "router/request_flow.h"
#include "tests/router/route_plans.h"

namespace baton {
namespace {

using Kind = FlowAction::Kind;

// Host that carries out every action and tracks the open calls.
class Host {
 public:
  explicit Host(std::mt19937_64& random) : random_(random), flow_(3, 2) { Do(flow_.Start()); }

  void RandomEvent() {
    const auto attempt = static_cast<int32_t>(random_() % 4);
    switch (random_() % 13) {
      case 11:
      case 12:
        if (attempt == flow_.attempt()) pull_open_ = false;
        return Do(flow_.OnPullEnded(attempt));
      case 0:
        return Do(flow_.OnTicket(attempt));
      case 1:
      case 2:
        return Do(flow_.OnTokens(attempt));
      case 3:
        return Do(flow_.OnDecodeFinished(attempt));
      case 4:
        if (attempt == flow_.attempt()) decode_open_ = false;
        return Do(flow_.OnDecodeFailed(attempt, RandomStatus()));
      case 5:
        if (attempt == flow_.attempt()) prefill_open_ = false;
        return Do(flow_.OnPrefillDone(attempt));
      case 6:
        if (attempt == flow_.attempt()) prefill_open_ = false;
        return Do(flow_.OnPrefillFailed(attempt, RandomStatus()));
      case 7:
        return Do(flow_.OnPrefillLocallyDone(attempt, RandomStatus()));
      case 8:
        return Do(flow_.OnReportOverdue());
      case 9:
        return Do(flow_.OnChoiceFinished(attempt));
      case 10:
        if (random_() % 8 != 0) return;
        return Do(flow_.OnClientGone(absl::CancelledError("bye")));
    }
  }
  void LeaveAtLast() { Do(flow_.OnClientGone(absl::DeadlineExceededError("late"))); }

  void Check() const {
    EXPECT_EQ(terminal_, 1);
    EXPECT_FALSE(pull_open_);
    EXPECT_FALSE(decode_open_);
    EXPECT_FALSE(prefill_open_);
    EXPECT_LE(started_, 1);
  }

 private:
  absl::Status RandomStatus() {
    switch (random_() % 5) {
      case 0:
        return absl::OkStatus();
      case 1:
        return absl::UnavailableError("u");
      case 2:
        return absl::ResourceExhaustedError("r");
      case 3:
        return absl::NotFoundError("n");
      default:
        return absl::InternalError("i");
    }
  }

  void Do(RequestFlow::Actions actions) {
    for (const FlowAction& action : actions) {
      ASSERT_EQ(terminal_, 0) << "after the end: " << FlowActionName(action.kind);
      switch (action.kind) {
        case Kind::kChooseRoute:
          if (random_() % 4 == 0) return Do(flow_.OnNoRoute(absl::UnavailableError("no worker")));
          if (random_() % 3 == 0) return Do(flow_.OnRoute(Pulling()));
          return Do(flow_.OnRoute(random_() % 2 == 0 ? Remote() : Local()));
        case Kind::kPull:
          EXPECT_FALSE(pull_open_ || decode_open_ || prefill_open_);
          pull_open_ = true;
          break;
        case Kind::kCancelPull:
          EXPECT_TRUE(pull_open_);
          pull_open_ = false;
          break;
        case Kind::kSendStarted:
          ++started_;
          break;
        case Kind::kOpenDecode:
          EXPECT_FALSE(pull_open_);
          EXPECT_FALSE(decode_open_);
          EXPECT_FALSE(prefill_open_) << "the previous attempt's prefill is still open";
          decode_open_ = true;
          break;
        case Kind::kSendPrefill:
          EXPECT_FALSE(prefill_open_);
          prefill_open_ = true;
          break;
        case Kind::kCancelDecode:
          EXPECT_TRUE(decode_open_);
          decode_open_ = false;
          break;
        case Kind::kCancelPrefill:
          EXPECT_TRUE(prefill_open_);
          prefill_open_ = false;
          break;
        case Kind::kForwardTokens:
        case Kind::kForwardFinished:
          EXPECT_EQ(started_, 1);
          break;
        case Kind::kFinish:
        case Kind::kFail:
          ++terminal_;
          break;
        case Kind::kPrefillLocally:
        case Kind::kAwaitReport:
          break;
      }
    }
  }

  std::mt19937_64& random_;
  RequestFlow flow_;
  bool pull_open_ = false;
  bool decode_open_ = false;
  bool prefill_open_ = false;
  int started_ = 0;
  int terminal_ = 0;
};

TEST(RequestFlow, AnyOrderOfEventsEndsOnceAndLeavesNoCallOpen) {
  constexpr int kRequests = 20'000;
  constexpr int kEvents = 40;
  const char* chosen = std::getenv("BATON_TEST_SEED");
  const uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 20261121;
  SCOPED_TRACE("BATON_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < kRequests && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Host host(random);
    const auto events = random() % kEvents;
    for (uint64_t event = 0; event < events; ++event) host.RandomEvent();
    host.LeaveAtLast();
    host.Check();
  }
}

}  // namespace
}  // namespace baton
