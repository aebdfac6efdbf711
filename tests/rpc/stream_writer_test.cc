#include "rpc/stream_writer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "baton/v1/worker.pb.h"

namespace baton {
namespace {

// A stream without a call: the first message is in flight forever, the others wait.
class UnreadStream final : public StreamWriter<v1::DecodeEvent> {
 public:
  using StreamWriter::StreamWriter;

  bool SendBytes(size_t bytes) {
    v1::DecodeEvent event;
    event.mutable_tokens()->set_text(std::string(bytes, 'x'));
    return Send(std::move(event));
  }

 protected:
  void OnCalledOff() override {}
};

constexpr size_t kMiB = size_t{1} << 20;

TEST(StreamWriter, BoundsTheMessagesThatWait) {
  UnreadStream stream(2);
  EXPECT_TRUE(stream.SendBytes(1));  // on its way
  EXPECT_TRUE(stream.SendBytes(1));
  EXPECT_TRUE(stream.SendBytes(1));
  EXPECT_FALSE(stream.SendBytes(1));
  EXPECT_FALSE(stream.SendBytes(1)) << "it has ended";
}

TEST(StreamWriter, BoundsTheBytesThatWait) {
  UnreadStream stream(1000);
  EXPECT_TRUE(stream.SendBytes(kMiB));  // on its way
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream.SendBytes(kMiB));
  EXPECT_TRUE(stream.SendBytes(kMiB / 2));
  EXPECT_FALSE(stream.SendBytes(kMiB / 2)) << "4 MiB, plus the messages' own fields";
  EXPECT_FALSE(stream.SendBytes(1)) << "it has ended";
}

TEST(StreamWriter, TakesOneLargeMessageWhenNothingWaits) {
  UnreadStream stream(1000);
  EXPECT_TRUE(stream.SendBytes(1));  // on its way
  EXPECT_TRUE(stream.SendBytes(5 * kMiB));
  EXPECT_FALSE(stream.SendBytes(1));
}

TEST(StreamWriter, IsStalledSinceItsWriteBegan) {
  const auto before = std::chrono::steady_clock::now();
  UnreadStream stream(10);
  const auto later = before + std::chrono::hours(1);
  EXPECT_EQ(stream.StalledSince(later), later) << "nothing waits";
  EXPECT_TRUE(stream.SendBytes(1));
  const auto since = stream.StalledSince(later);
  EXPECT_GE(since, before);
  EXPECT_LE(since, std::chrono::steady_clock::now());
  EXPECT_TRUE(stream.SendBytes(1));
  EXPECT_EQ(stream.StalledSince(later), since) << "the same write";
}

TEST(StreamWriter, IsBehindSinceItsOldestMessageWasQueued) {
  const auto before = std::chrono::steady_clock::now();
  UnreadStream stream(10);
  const auto later = before + std::chrono::hours(1);
  EXPECT_EQ(stream.BehindSince(later), later) << "nothing waits";
  EXPECT_TRUE(stream.SendBytes(1));
  const auto since = stream.BehindSince(later);
  EXPECT_GE(since, before);
  EXPECT_LE(since, std::chrono::steady_clock::now());
  EXPECT_TRUE(stream.SendBytes(1));
  EXPECT_EQ(stream.BehindSince(later), since) << "the first one has not left";
}

}  // namespace
}  // namespace baton
