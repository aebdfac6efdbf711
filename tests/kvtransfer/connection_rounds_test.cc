// The order of work in a round, links over several ways, and limits, with streams in memory.
#include "kvtransfer/sockets/connection_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/kvtransfer/hostile_peer.h"
#include "tests/kvtransfer/piped_worker.h"

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using Kind = TransferEvent::Kind;

constexpr int64_t kNever = INT64_MAX;

class ConnectionRoundsTest : public ::testing::Test {
 protected:
  // Runs rounds until nothing is left to do.
  void RunRounds() {
    for (int i = 0; i < 12; ++i) {
      for (const auto& [name, worker] : network_) worker->Round(now_us_);
    }
  }
  // Starts a transfer of three blocks to a worker with this address and epoch.
  static void Send(PipedWorker& from, const std::string& address, uint64_t id, uint64_t epoch) {
    from.Post(SendSpec{.sender_transfer = id,
                       .ticket = {.transfer_id = id,
                                  .receiver_epoch = Epoch(epoch),
                                  .address = address,
                                  .block_count = 3},
                       .tokens = kTokens});
  }
  static void Finish(PipedWorker& from, uint64_t id) {
    from.Post(AnnounceCommand{
        .sender_transfer = id, .blocks = MakeBlocks(20, 3), .final = true, .manifest = "m"});
  }
  void Transfer(PipedWorker& from, PipedWorker& to, const std::string& address, uint64_t id,
                uint64_t epoch) {
    to.Post(Spec(id));
    Send(from, address, id, epoch);
    Finish(from, id);
  }

  // Lets three strangers arrive at a worker that has room for two. Returns the third.
  PipeStream ExpectThirdStrangerToReplaceTheFirst(PipedWorker& worker) {
    const PipeStream first = worker.Arrive();
    const PipeStream second = worker.Arrive();
    RunRounds();
    EXPECT_THAT(worker.closed(), IsEmpty());
    PipeStream third = worker.Arrive();
    RunRounds();
    EXPECT_TRUE(first.in->closed) << "the oldest one";
    EXPECT_FALSE(second.in->closed);
    EXPECT_FALSE(third.in->closed);
    return third;
  }

  int64_t now_us_ = 1'000'000;
  PipedWorker::Network network_;
  PipedWorker a_{network_, "a", 1};
  PipedWorker b_{network_, "b", 2};
};

TEST_F(ConnectionRoundsTest, EveryRoundKeepsTheOrderOfItsParts) {
  Transfer(a_, b_, "b", 1, 2);
  Transfer(b_, a_, "a", 2, 1);
  RunRounds();
  EXPECT_THAT(a_.ends(), ::testing::UnorderedElementsAre(Kind::kSent, Kind::kReceived));
  EXPECT_THAT(b_.ends(), ::testing::UnorderedElementsAre(Kind::kSent, Kind::kReceived));
  for (PipedWorker* worker : {&a_, &b_}) {
    EXPECT_THAT(worker->logs(), Each(MatchesRegex("p[praoq]*d(R+E)?n[aq]*w[oq]*(R+E)?w")));
  }
  // The parts met each other in one round.
  EXPECT_THAT(b_.logs(), Contains(ContainsRegex("En[aq]*aq*w")));
  EXPECT_THAT(b_.logs(), Contains(ContainsRegex("aq*wq*o")));
}

TEST_F(ConnectionRoundsTest, AnAnnouncementFindsATransferThatWasPostedDuringTheRound) {
  Send(a_, "b", 1, 2);
  Finish(a_, 1);
  for (PipedWorker* worker : {&a_, &b_, &a_, &b_, &a_}) worker->Round(now_us_);
  b_.PostDuringNextRound(Spec(1));  // the announcement waits in the stream
  RunRounds();
  EXPECT_THAT(b_.ends(), ElementsAre(Kind::kReceived));
}

TEST_F(ConnectionRoundsTest, TheNextWayIsTriedUntilAConnectionIsOpen) {
  Transfer(a_, b_, "refused,dead,b,refused", 1, 2);
  RunRounds();
  EXPECT_THAT(a_.ends(), ElementsAre(Kind::kSent));
  EXPECT_THAT(a_.ways(), ElementsAre("refused", "dead", "b"));
  EXPECT_EQ(a_.closed().size(), 1);
}

TEST_F(ConnectionRoundsTest, TheFailureOfTheLastWayFailsTheTransferOnce) {
  for (const auto& [address, reason] :
       std::map<std::string, std::string>{{"dead,refused", "it is refused"},
                                          {"refused,dead", "it is dead"},
                                          {"unknown", "no way"}}) {
    Send(a_, address, 1, 2);
    RunRounds();
    ASSERT_FALSE(a_.ends().empty()) << address;
    EXPECT_THAT(std::string(a_.last_event().status.message()), HasSubstr(reason));
    EXPECT_EQ(a_.connections(), 0);
  }
  EXPECT_THAT(a_.ends(), ElementsAre(Kind::kSendFailed, Kind::kSendFailed, Kind::kSendFailed));
}

TEST_F(ConnectionRoundsTest, NoOtherWayIsTriedAfterAnOpenConnectionWasLost) {
  b_.Post(Spec(1));
  Send(a_, "b,a", 1, 2);
  RunRounds();
  ASSERT_EQ(b_.connections(), 1);
  b_.rounds().Close(PeerId(ConnectionRounds::kFirstPeer), absl::UnavailableError("test"), now_us_);
  RunRounds();
  EXPECT_THAT(a_.ends(), ElementsAre(Kind::kSendFailed));
  EXPECT_THAT(b_.ends(), ElementsAre(Kind::kReceiveFailed));
  EXPECT_THAT(a_.ways(), ElementsAre("b"));
}

TEST_F(ConnectionRoundsTest, AConnectionIsClosedAtItsTimeLimitAndReportsNothingMore) {
  const PipeStream stranger = b_.Arrive();
  b_.Round(now_us_);
  const TcpOptions tcp;
  EXPECT_EQ(b_.rounds().NextRoundUs(now_us_), now_us_ + tcp.handshake_timeout_ms * 1000);
  now_us_ = b_.rounds().NextRoundUs(now_us_);
  b_.Round(now_us_);
  EXPECT_THAT(b_.closed(), ElementsAre(ConnectionRounds::kFirstPeer));
  EXPECT_TRUE(stranger.in->closed);
  EXPECT_EQ(b_.rounds().NextRoundUs(now_us_), kNever);
  b_.rounds().OnReady(PeerId(ConnectionRounds::kFirstPeer), true, true, now_us_);
  EXPECT_EQ(b_.closed().size(), 1);
}

TEST_F(ConnectionRoundsTest, ANewConnectionReplacesTheOldestStranger) {
  PipedWorker small(network_, "small", 3, {.max_connections = 3});
  Transfer(a_, small, "small", 1, 3);
  RunRounds();
  const PipeStream third = ExpectThirdStrangerToReplaceTheFirst(small);
  EXPECT_EQ(small.connections(), 3);
  constexpr uint64_t kSecond = ConnectionRounds::kFirstPeer + 2;
  small.rounds().Close(PeerId(kSecond), absl::UnavailableError("test"), now_us_);
  small.Arrive();
  RunRounds();
  EXPECT_FALSE(third.in->closed) << "a closed connection leaves room";
}

TEST_F(ConnectionRoundsTest, ANewConnectionReplacesTheOldestWithoutAHandshake) {
  PipedWorker small(network_, "small", 3, {.max_connections = 10, .max_opening = 2});
  Transfer(a_, small, "small", 1, 3);
  RunRounds();
  ExpectThirdStrangerToReplaceTheFirst(small);
  EXPECT_EQ(small.connections(), 3) << "an open connection does not count";
}

TEST_F(ConnectionRoundsTest, ANewConnectionIsNotMadeIfAllOthersAreKnown) {
  PipedWorker small(network_, "small", 3, {.max_connections = 2});
  Transfer(a_, small, "small", 1, 3);
  Transfer(b_, small, "small", 2, 3);
  RunRounds();
  ASSERT_EQ(small.connections(), 2);
  const PipeStream stranger = small.Arrive();
  RunRounds();
  EXPECT_EQ(small.connections(), 2);
  EXPECT_THAT(small.closed(), IsEmpty());
  EXPECT_EQ(stranger.in.use_count(), 1) << "no connection has the other end";
}

TEST_F(ConnectionRoundsTest, TheNextRoundIsDueWhenWorkWaits) {
  EXPECT_EQ(b_.rounds().NextRoundUs(now_us_), kNever);
  const PipeStream stranger = b_.Arrive();
  b_.Round(now_us_);
  EXPECT_GT(b_.rounds().NextRoundUs(now_us_), now_us_ + kBufferRetryUs);
  b_.claims().pool_wait = PoolWait::kBuffer;
  b_.Round(now_us_);
  EXPECT_EQ(b_.rounds().pool_wait(), PoolWait::kBuffer);
  EXPECT_EQ(b_.rounds().NextRoundUs(now_us_), now_us_ + kBufferRetryUs);
  b_.claims().pool_wait = PoolWait::kCopy;
  b_.Round(now_us_);
  EXPECT_EQ(b_.rounds().NextRoundUs(now_us_), now_us_);
  b_.claims() = {.has_unread = true};
  b_.Round(now_us_);
  EXPECT_EQ(b_.rounds().pool_wait(), PoolWait::kNothing);
  EXPECT_EQ(b_.rounds().NextRoundUs(now_us_), now_us_);
}

TEST_F(ConnectionRoundsTest, TheSenderHearsOfADeadlineInTheRoundThatReachesIt) {
  ReceiveSpec spec = Spec(1);
  spec.timeout_ms = 400;
  b_.Post(spec);
  Send(a_, "b", 1, 2);
  a_.Post(AnnounceCommand{.sender_transfer = 1, .blocks = MakeBlocks(20, 1), .manifest = ""});
  RunRounds();
  now_us_ += 400'000;
  b_.Round(now_us_);
  EXPECT_THAT(b_.ends(), ElementsAre(Kind::kReceiveFailed));
  a_.Round(now_us_);
  EXPECT_THAT(a_.ends(), ElementsAre(Kind::kSendFailed));
}

TEST_F(ConnectionRoundsTest, AConnectionThatWaitsContinuesInEveryRound) {
  b_.Post(Spec(1));
  Send(a_, "b", 1, 2);
  RunRounds();
  const auto log_of_round_with = [this](const ConnectionClaims& claims) {
    a_.claims() = claims;
    a_.Round(now_us_);
    return a_.logs().back();
  };
  EXPECT_EQ(log_of_round_with({}), "pdnww");
  EXPECT_EQ(log_of_round_with({.has_unread = true}), "pdrnww");
  EXPECT_EQ(log_of_round_with({.reading_paused = true}), "pdrnww");
  EXPECT_EQ(log_of_round_with({.pool_wait = PoolWait::kBuffer}), "pdnwqw");
}

TEST_F(ConnectionRoundsTest, AnAnswerIsExpectedFromAPeerThatAnswersAtOnceWhileATransferRuns) {
  a_.claims().answers_at_once = true;
  b_.Post(Spec(1));
  Send(a_, "b", 1, 2);
  RunRounds();
  EXPECT_FALSE(a_.rounds().expects_answer()) << "nothing moved";
  Finish(a_, 1);
  a_.Round(now_us_);
  EXPECT_TRUE(a_.rounds().expects_answer()) << "the announcement was written";
  b_.Round(now_us_);
  EXPECT_FALSE(b_.rounds().expects_answer()) << "this side's peer may be slow";
  a_.Round(now_us_);
  EXPECT_TRUE(a_.rounds().expects_answer()) << "a pull was read, and blocks were written";
  b_.Round(now_us_);
  a_.Round(now_us_);
  ASSERT_THAT(a_.ends(), ElementsAre(Kind::kSent));
  EXPECT_FALSE(a_.rounds().expects_answer()) << "no transfer is left";
}

TEST_F(ConnectionRoundsTest, ClearClosesStreamsWithoutAReport) {
  b_.Post(Spec(1));
  Send(a_, "b", 1, 2);
  RunRounds();
  ASSERT_FALSE(a_.rounds().empty());
  a_.rounds().Clear();
  EXPECT_TRUE(a_.rounds().empty());
  EXPECT_THAT(a_.closed(), IsEmpty());
  EXPECT_FALSE(a_.rounds().node().has_events());
}

}  // namespace
}  // namespace baton
