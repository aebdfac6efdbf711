#include "rpc/stream_watch.h"

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
  void Abandon() override { ++abandoned; }

  void CallOff(absl::Status status) override { last_word = std::move(status); }

  bool writing = false;
  Time since;
  int abandoned = 0;
  absl::Status last_word;
};

TEST(StreamWatch, AbandonsOnlyWhatHasWaitedTooLong) {
  const Time start{};
  StreamWatch watch(milliseconds(100));
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

TEST(StreamWatch, CallsOffAllThatAreThere) {
  StreamWatch watch(milliseconds(100));
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
