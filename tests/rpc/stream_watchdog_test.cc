#include "rpc/stream_watchdog.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace baton {
namespace {

using Time = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

class FakeStream final : public WatchedStream {
 public:
  Time StalledSince(Time now) override { return writing ? since : now; }
  Time BehindSince(Time now) override { return writing ? behind_since : now; }
  void Abandon() override { ++abandoned; }

  void CallOff(absl::Status status) override { last_word = std::move(status); }

  bool writing = false;
  Time since;
  Time behind_since = Time::max();
  int abandoned = 0;
  absl::Status last_word;
};

TEST(StreamWatchdog, AbandonsOnlyStreamsThatHaveWaitedTooLong) {
  const Time start{};
  StreamWatchdog watch(milliseconds(100));
  const auto idle = std::make_shared<FakeStream>();
  const auto young = std::make_shared<FakeStream>();
  const auto old = std::make_shared<FakeStream>();
  auto gone = std::make_shared<FakeStream>();
  for (const auto& stream : {idle, young, old, gone}) watch.Add(stream);
  young->writing = old->writing = gone->writing = true;
  young->since = start + milliseconds(50);
  old->since = gone->since = start;
  gone.reset();
  EXPECT_EQ(watch.Tick(start + milliseconds(99)), 0);
  EXPECT_EQ(watch.Tick(start + milliseconds(100)), 1);
  EXPECT_EQ(old->abandoned, 1);
  old->writing = false;
  EXPECT_EQ(watch.Tick(start + milliseconds(160)), 1);
  EXPECT_EQ(young->abandoned, 1);
  EXPECT_EQ(idle->abandoned, 0);
}

// The client reads a message just before the timeout, again and again, and never catches up.
TEST(StreamWatchdog, AbandonsOneThatTakesTooLittle) {
  const Time start{};
  StreamWatchdog watch(milliseconds(100));
  const auto slow = std::make_shared<FakeStream>();
  const auto keeps_up = std::make_shared<FakeStream>();
  for (const auto& stream : {slow, keeps_up}) {
    watch.Add(stream);
    stream->writing = true;
  }
  slow->behind_since = start;
  int abandoned_at = 0;
  for (int ms = 90; ms < 2000; ms += 90) {
    const Time now = start + milliseconds(ms);
    slow->since = keeps_up->since = now - milliseconds(90);
    keeps_up->behind_since = now - milliseconds(999);
    if (watch.Tick(now) > 0 && abandoned_at == 0) abandoned_at = ms;
  }
  EXPECT_EQ(abandoned_at, 1080);  // the first tick after 10 times the patience
  EXPECT_EQ(keeps_up->abandoned, 0);
}

TEST(StreamWatchdog, CallOffCancelsEveryLiveStream) {
  StreamWatchdog watch(milliseconds(100));
  const auto stream = std::make_shared<FakeStream>();
  auto gone = std::make_shared<FakeStream>();
  watch.Add(stream);
  watch.Add(gone);
  gone.reset();
  EXPECT_EQ(watch.CallOff(absl::UnavailableError("ending")), 1);
  EXPECT_EQ(stream->last_word, absl::UnavailableError("ending"));
}

}  // namespace
}  // namespace baton
