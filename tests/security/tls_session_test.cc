#include "security/tls_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/security/tls_pair.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

class TlsSessionTest : public ::testing::Test {
 protected:
  const TrialSet set_;
  const std::shared_ptr<const TlsContext> server_context_ =
      *TlsContext::Load(set_.Files("worker"), {.side = TlsSide::kServer});
  const std::shared_ptr<const TlsContext> client_context_ =
      *TlsContext::Load(set_.Files("router"), {.side = TlsSide::kClient});
  TlsPair pair_{*server_context_, *client_context_};
};

TEST_F(TlsSessionTest, MovesBytesInBothDirections) {
  std::string text(3'000'000, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 7);
  // The first reads and writes do the handshake.
  EXPECT_FALSE(pair_.server().established());
  EXPECT_EQ(TlsPair::Pass(pair_.client(), pair_.server(), text) == text, true);
  EXPECT_EQ(TlsPair::Pass(pair_.server(), pair_.client(), text) == text, true);
  EXPECT_TRUE(pair_.server().established());
}

TEST_F(TlsSessionTest, MovesBytesThroughLargerBuffers) {
  const auto server =
      *TlsContext::Load(set_.Files("worker"), {.side = TlsSide::kServer, .bulk = true});
  const auto client =
      *TlsContext::Load(set_.Files("worker"), {.side = TlsSide::kClient, .bulk = true});
  TlsPair pair(*server, *client);
  const std::string text(1'000'000, 'b');
  EXPECT_EQ(TlsPair::Pass(pair.client(), pair.server(), text) == text, true);
  EXPECT_EQ(TlsPair::Pass(pair.server(), pair.client(), text) == text, true);
}

// The socket takes a part of a batch at a time, so most batches end with EAGAIN. Bytes that both
// ends send meanwhile must not come between the records of a batch.
TEST_F(TlsSessionTest, BatchesOfRunsOfAnyLengthsArriveInOrderInBothDirections) {
  const auto server =
      *TlsContext::Load(set_.Files("worker"), {.side = TlsSide::kServer, .bulk = true});
  const auto client =
      *TlsContext::Load(set_.Files("worker"), {.side = TlsSide::kClient, .bulk = true});
  TlsPair pair(*server, *client);
  ASSERT_TRUE(pair.ShakeHands());
  std::mt19937_64 random(7);
  std::string text(3'000'000, ' ');
  for (char& byte : text) byte = static_cast<char>(random());
  struct Direction {
    TlsSession* from;
    TlsSession* to;
    size_t sent = 0;
    std::string arrived = {};
  };
  std::array<Direction, 2> directions = {
      {{&pair.client(), &pair.server()}, {&pair.server(), &pair.client()}}};
  int waits = 0;
  for (int turn = 0; turn < 100'000; ++turn) {
    Direction& one = directions[random() % 2];
    std::vector<iovec> runs;
    // After EAGAIN, the bytes are the same, but not their runs.
    for (size_t at = one.sent; at < text.size() && runs.size() < 20;) {
      constexpr size_t kLengths[] = {1, 300, 6000, 16384, 40000, 300000};
      const size_t length = std::min(kLengths[random() % 6], text.size() - at);
      runs.push_back({.iov_base = text.data() + at, .iov_len = length});
      at += length;
    }
    if (!runs.empty()) {
      const ssize_t count = one.from->WriteBatch(runs);
      ASSERT_TRUE(count > 0 || errno == EAGAIN) << one.from->failure();
      waits += count < 0;
      EXPECT_EQ(one.from->wants_output(), count < 0);
      one.sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
    std::array<std::byte, 70'000> bytes;
    const ssize_t got = one.to->Read(std::span(bytes).first(1 + random() % bytes.size()));
    ASSERT_TRUE(got > 0 || errno == EAGAIN) << one.to->failure();
    if (got > 0) one.arrived.append(reinterpret_cast<const char*>(bytes.data()), got);
    if (directions[0].arrived.size() + directions[1].arrived.size() == 2 * text.size()) break;
  }
  EXPECT_TRUE(directions[0].arrived == text);
  EXPECT_TRUE(directions[1].arrived == text);
  EXPECT_GT(waits, 10);
}

TEST_F(TlsSessionTest, SaysThatItMustWaitForInput) {
  EXPECT_EQ(pair_.server().Handshake(), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(pair_.server().wants_input());
  ASSERT_TRUE(pair_.ShakeHands());
  std::byte byte;
  EXPECT_EQ(pair_.server().Read({&byte, 1}), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(pair_.server().HasUnread());
}

TEST_F(TlsSessionTest, HoldsBytesThatTheSocketNoLongerReports) {
  ASSERT_TRUE(pair_.ShakeHands());
  const std::string text = "two bytes";
  ASSERT_EQ(pair_.client().Write(std::as_bytes(std::span(text))), ssize_t(text.size()));
  std::byte byte;
  ASSERT_EQ(pair_.server().Read({&byte, 1}), 1);
  EXPECT_TRUE(pair_.server().HasUnread());
}

TEST_F(TlsSessionTest, SeesTheEndOfTheOtherSide) {
  ASSERT_TRUE(pair_.ShakeHands());
  pair_.client().CloseSending();
  std::byte byte;
  EXPECT_EQ(pair_.server().Read({&byte, 1}), 0);
}

TEST_F(TlsSessionTest, SeesThatTheConnectionIsGoneWithoutASignal) {
  ASSERT_TRUE(pair_.ShakeHands());
  pair_.CloseClientSocket();
  std::byte byte;
  EXPECT_EQ(pair_.server().Read({&byte, 1}), 0);
  const std::string text(100'000, 'x');
  ssize_t count = 0;
  for (int i = 0; i < 10 && count >= 0; ++i) {
    count = pair_.server().Write(std::as_bytes(std::span(text)));
  }
  EXPECT_EQ(count, -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(TlsSessionTest, RefusesAPeerThatDoesNotSpeakTls) {
  std::array<int, 2> sockets;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets.data()), 0);
  const FileDescriptor server_socket(sockets[0]);
  const FileDescriptor client_socket(sockets[1]);
  TlsSession server(*server_context_, sockets[0]);
  const std::string text = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(sockets[1], text.data(), text.size()), ssize_t(text.size()));
  EXPECT_EQ(server.Handshake(), -1);
  EXPECT_EQ(errno, EPROTO);
  EXPECT_FALSE(server.failure().empty());
}

}  // namespace
}  // namespace baton
