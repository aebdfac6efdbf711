#include "security/tls_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

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
