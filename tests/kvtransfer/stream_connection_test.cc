// Timeouts and turns of a connection, with a fake clock. The transports' tests cover its behaviour
// with peers.
#include "kvtransfer/sockets/stream_connection.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kvtransfer/sockets/tcp_connection.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {
namespace {

constexpr int64_t kMillisecond = 1000;

// Clock that advances each time it is read.
class TickingClock final : public Clock {
 public:
  int64_t NowUs() const override { return now_us += tick_us; }
  mutable int64_t now_us = 0;
  int64_t tick_us = 0;
};

// Connection that stops reading on request, like one that waits for its pool.
class PausableConnection final : public TcpConnection {
 public:
  using TcpConnection::TcpConnection;
  bool paused = false;

 protected:
  bool ReadingPaused() const override { return paused || TcpConnection::ReadingPaused(); }
};

// A receiver; the test acts as its sender.
class StreamConnectionTest : public testing::Test {
 protected:
  StreamConnectionTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    theirs_ = FileDescriptor(ends[0]);
    ours_ = ends[1];
    connection_ =
        std::make_unique<PausableConnection>(ConnectionParts{.node = node_,
                                                             .options = options_,
                                                             .peer = PeerId(1),
                                                             .socket = FileDescriptor(ends[1]),
                                                             .address = "",
                                                             .now_us = now_us_,
                                                             .clock = &clock_});
    Say(EncodeFrame(
        HelloFrame{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "raw"}));
    EXPECT_TRUE(connection_->OnReadable(now_us_).ok());
  }

  void Say(const std::string& bytes) {
    ASSERT_EQ(write(theirs_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  void OpenTransfer() {
    node_.Apply(Spec(1), now_us_);
    Say(EncodeFrame(Announcement(1)));
    ASSERT_TRUE(connection_->OnReadable(now_us_).ok());
    ASSERT_TRUE(connection_->OnTimer(now_us_).ok());
  }
  int Unread() const {
    int bytes = 0;
    EXPECT_EQ(ioctl(ours_, FIONREAD, &bytes), 0);
    return bytes;
  }

  const TcpOptions options_;
  TickingClock clock_;  // behind the rounds' time unless a test sets it
  const KvPoolLayout layout_ = MakeLayout({});
  std::vector<std::byte> pool_ = std::vector<std::byte>(layout_.pool_bytes());
  HostPool lender_{pool_.data(), layout_};
  TransferNode node_{lender_, MakeFingerprint({}), Epoch(2)};
  int64_t now_us_ = 1'000'000;
  FileDescriptor theirs_;
  int ours_ = -1;
  std::unique_ptr<PausableConnection> connection_;
};

TEST_F(StreamConnectionTest, NoTimeLimitOfThePeerRunsWhileThisSideReadsNothing) {
  OpenTransfer();
  const std::string frame = EncodeFrame(Announcement(1));
  Say(frame.substr(0, frame.size() - 1));
  ASSERT_TRUE(connection_->OnReadable(now_us_).ok());
  connection_->paused = true;
  const int64_t longest_ms = 3 * std::max(options_.frame_timeout_ms, options_.silence_timeout_ms);
  for (int64_t paused_ms = 0; paused_ms < longest_ms; paused_ms += 50) {
    now_us_ += 50 * kMillisecond;
    ASSERT_TRUE(connection_->OnTimer(now_us_).ok()) << paused_ms;
  }
  connection_->paused = false;
  now_us_ += 50 * kMillisecond;
  EXPECT_TRUE(connection_->OnTimer(now_us_).ok());
}

TEST_F(StreamConnectionTest, APeerIsCutAfterASilenceDuringWhichThisSideRan) {
  OpenTransfer();
  for (int64_t silent_ms = 0; silent_ms < options_.silence_timeout_ms; silent_ms += 50) {
    ASSERT_TRUE(connection_->OnTimer(now_us_).ok()) << silent_ms;
    now_us_ += 50 * kMillisecond;
  }
  EXPECT_TRUE(absl::IsUnavailable(connection_->OnTimer(now_us_)));
}

TEST_F(StreamConnectionTest, APauseOfThisProcessDoesNotCountAsThePeersSilence) {
  OpenTransfer();
  for (int i = 0; i < 3; ++i) {
    now_us_ += 10 * options_.silence_timeout_ms * kMillisecond;
    ASSERT_TRUE(connection_->OnTimer(now_us_).ok());
  }
  absl::Status cut;
  for (int64_t awake_ms = 0; awake_ms <= options_.silence_timeout_ms && cut.ok(); awake_ms += 50) {
    cut = connection_->OnTimer(now_us_);
    now_us_ += 50 * kMillisecond;
  }
  EXPECT_TRUE(absl::IsUnavailable(cut)) << "after the pause, silence counts again";
}

// The round's time stands still while it reads. The time of a transfer continues.
TEST_F(StreamConnectionTest, BusyTimeOfATransferCountsWhileItsBlocksAreRead) {
  OpenTransfer();
  clock_.now_us = now_us_;
  clock_.tick_us = 70;
  for (int32_t block = 0; block < 3; ++block) {
    const RawBlock raw = MakeRawBlock(layout_, 1, block);
    Say(EncodeFrame(raw.frame) + raw.payload);
  }
  ASSERT_TRUE(connection_->OnReadable(now_us_).ok());
  const std::vector<TransferEvent> events = node_.TakeEvents();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().kind, TransferEvent::Kind::kReceived);
  EXPECT_EQ(events.back().busy_us, 3 * 70);
}

// However small a peer's frames are, other connections get their turn.
TEST_F(StreamConnectionTest, ATurnIsBoundedInFramesToo) {
  const std::string pong = EncodeFrame(PongFrame{});
  std::string flood;
  for (int i = 0; i < 4000; ++i) flood += pong;
  Say(flood);
  ASSERT_TRUE(connection_->OnReadable(now_us_).ok());
  EXPECT_GT(Unread(), 1000 * static_cast<int>(pong.size()));
  EXPECT_LT(Unread(), static_cast<int>(flood.size()));
}

}  // namespace
}  // namespace baton
