#include "engine/engine_inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "tests/engine/waiting_sink.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class EngineInboxTest : public ::testing::Test {
 protected:
  std::vector<EngineInbox::Event> Taken() {
    std::vector<EngineInbox::Event> events;
    open_ = inbox_.Take(events);
    return events;
  }
  static void Ignore(WorkerCore&) {}

  ManualClock clock_;
  absl::Status found_;
  IdleIntegrityCheck integrity_check_{[this] { return found_; }, &clock_};
  int wakes_ = 0;
  EngineInbox inbox_{&integrity_check_, [this] { ++wakes_; }};
  bool open_ = true;
};

TEST_F(EngineInboxTest, EveryAcceptedEventIsTakenOnceAndWakesTheLoop) {
  ASSERT_TRUE(inbox_.Post(Ignore).ok());
  inbox_.Cancel(7);
  EXPECT_EQ(wakes_, 2);
  EXPECT_FALSE(inbox_.empty());
  EXPECT_EQ(Taken().size(), 2u);
  EXPECT_TRUE(open_);
  EXPECT_TRUE(inbox_.empty());
  EXPECT_EQ(Taken().size(), 0u);
}

TEST_F(EngineInboxTest, ARequestHasAHandleForEachOfItsChoices) {
  GenerateRequest three;
  three.n = 3;
  const auto sink = std::make_shared<WaitingSink>();
  const RequestHandle first = inbox_.Generate(three, sink);
  const RequestHandle second = inbox_.Generate(three, sink);
  EXPECT_EQ(second, first + 3);
  GenerateRequest absurd;
  absurd.n = -5;
  EXPECT_EQ(inbox_.Generate(absurd, sink), second + 3);
  EXPECT_EQ(inbox_.Generate(absurd, sink), second + 4);
}

TEST_F(EngineInboxTest, EventsThatOnlyFreeAreAcceptedBeyondTheLimit) {
  for (size_t i = 0; i < EngineInbox::kMaxEvents; ++i) ASSERT_TRUE(inbox_.Post(Ignore).ok());
  const absl::Status refused = inbox_.Post(Ignore);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(refused.message(), HasSubstr("full (65536 events)"));
  absl::Status locally;
  inbox_.PrefillLocally(1, Epoch(1), [&](const absl::Status& status) { locally = status; });
  EXPECT_TRUE(absl::IsResourceExhausted(locally));
  inbox_.Cancel(1);
  EXPECT_EQ(Taken().size(), EngineInbox::kMaxEvents + 1);
}

TEST_F(EngineInboxTest, AClosedInboxRefusesNewEventsButReturnsQueuedOnes) {
  ASSERT_TRUE(inbox_.Post(Ignore).ok());
  inbox_.Close();
  EXPECT_EQ(wakes_, 2) << "the loop must notice the close";
  absl::StatusOr<int32_t> sent;
  inbox_.SendPrefix({}, [&](const absl::StatusOr<int32_t>& tokens) { sent = tokens; });
  EXPECT_TRUE(absl::IsUnavailable(sent.status()));
  EXPECT_TRUE(absl::IsUnavailable(inbox_.Post(Ignore, EngineInbox::Bound::kWaived)));
  EXPECT_EQ(Taken().size(), 1u);
  EXPECT_FALSE(open_);
}

TEST_F(EngineInboxTest, NoRequestEntersOnceAnIntegrityCheckFailed) {
  found_ = absl::InternalError("3 blocks are lost");
  integrity_check_.Worked();
  integrity_check_.OnIdle();
  absl::StatusOr<int32_t> sent = 0;
  inbox_.SendPrefix({}, [&](const absl::StatusOr<int32_t>& tokens) { sent = tokens; });
  EXPECT_TRUE(absl::IsUnavailable(sent.status()));
  EXPECT_THAT(std::string(sent.status().message()), HasSubstr("3 blocks are lost"));
  EXPECT_TRUE(inbox_.empty());
  inbox_.Cancel(1);
  EXPECT_FALSE(inbox_.empty()) << "admitted requests can still be cancelled";
}

TEST_F(EngineInboxTest, NothingIsLostBetweenPostersAndAClose) {
  std::atomic<int> accepted = 0;
  IdleIntegrityCheck integrity_check([] { return absl::OkStatus(); }, &clock_);
  EngineInbox inbox(&integrity_check, [] {});
  std::vector<std::thread> posters;
  for (int t = 0; t < 3; ++t) {
    posters.emplace_back([&] {
      while (inbox.Post([](WorkerCore&) {}).ok()) ++accepted;
    });
  }
  int taken = 0;
  std::vector<EngineInbox::Event> events;
  while (taken < 1000) {
    inbox.Take(events);
    taken += static_cast<int>(std::exchange(events, {}).size());
  }
  inbox.Close();
  EXPECT_FALSE(inbox.Take(events));
  taken += static_cast<int>(events.size());
  for (std::thread& poster : posters) poster.join();
  EXPECT_EQ(taken, accepted);
}

}  // namespace
}  // namespace baton
