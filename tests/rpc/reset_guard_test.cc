#include "rpc/reset_guard.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "common/file_descriptor.h"
#include "rpc/channel.h"
#include "rpc/rpc_server.h"
#include "tests/rpc/ask_in_bytes.h"

namespace baton {
namespace {

// ---- a client that sends HTTP/2 frames as it likes ----------------------------------------------

constexpr char kHeaders = 1, kReset = 3, kSettings = 4;
constexpr char kEndHeaders = 4;

std::string BigEndian(uint32_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

std::string Frame(char kind, char flags, uint32_t stream, const std::string& payload) {
  return BigEndian(static_cast<uint32_t>(payload.size()), 3) + kind + flags + BigEndian(stream, 4) +
         payload;
}

// A literal header field (RFC 7541, 6.2.2). REQUIRES: both texts are shorter than 127 bytes.
std::string Field(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

std::string BeginAndReset(uint32_t stream) {
  static const std::string fields = Field(":method", "POST") + Field(":scheme", "http") +
                                    Field(":path", kHealthCheck) + Field(":authority", "h") +
                                    Field("content-type", "application/grpc") +
                                    Field("te", "trailers");
  return Frame(kHeaders, kEndHeaders, stream, fields) + Frame(kReset, 0, stream, BigEndian(8, 4));
}

// Begins and resets calls until the server closes the connection, at most this many. Returns
// whether it did.
bool ServerEndsAStorm(const RpcServer& server, uint32_t calls, bool reads) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in to{.sin_family = AF_INET,
                       .sin_port = htons(static_cast<uint16_t>(server.port())),
                       .sin_addr = {htonl(INADDR_LOOPBACK)},
                       .sin_zero = {}};
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
  EXPECT_GT(send(socket.get(), preface.data(), preface.size(), MSG_NOSIGNAL), 0);
  std::string answers(1 << 16, '\0');
  for (uint32_t i = 0; i < calls; ++i) {
    // Data that was sent before the end can stay in the kernel, so the end shows here first.
    pollfd ready{.fd = socket.get(), .events = POLLOUT | POLLRDHUP, .revents = 0};
    EXPECT_GE(poll(&ready, 1, /*timeout=*/-1), 0);
    if ((ready.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) return true;
    const std::string bytes = BeginAndReset(2 * i + 1);
    if (send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return true;
    if (reads) (void)recv(socket.get(), answers.data(), answers.size(), MSG_DONTWAIT);
  }
  return false;
}

bool IsAnswered(const std::shared_ptr<grpc::Channel>& channel) {
  return AskInBytes(channel, kHealthCheck, "").first.ok();
}

RpcServerOptions Guarded(int64_t barred_us) {
  return {.max_concurrent_streams = 100,
          .resets = {.unanswered = 1024, .per_second = 100, .barred_us = barred_us}};
}

// A channel with a connection of its own.
std::shared_ptr<grpc::Channel> NewChannel(const RpcServer& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(server.address(), grpc::InsecureChannelCredentials(), arguments);
}

void ExpectStormsEnd(bool reads) {
  const auto server = RpcServer::Start(Guarded(/*barred_us=*/0), {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto other = NewChannel(**server);
  EXPECT_TRUE(IsAnswered(other));
  for (int storm = 0; storm < 3; ++storm) {
    EXPECT_TRUE(ServerEndsAStorm(**server, 10'000'000, reads));
    EXPECT_TRUE(IsAnswered(other));
    EXPECT_TRUE(IsAnswered(NewChannel(**server)));
  }
  EXPECT_EQ(other->GetState(false), GRPC_CHANNEL_READY) << "only the storm's connection may end";
}

TEST(ResetGuard, EndsStormsOfAClientThatReads) { ExpectStormsEnd(/*reads=*/true); }
TEST(ResetGuard, EndsStormsOfAClientThatReadsNothing) { ExpectStormsEnd(/*reads=*/false); }

TEST(ResetGuard, TheAddressOfAStormGetsNoOtherConnectionForAWhile) {
  constexpr int64_t kHourUs = 3'600'000'000;
  const auto server = RpcServer::Start(Guarded(kHourUs), {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto other = NewChannel(**server);
  EXPECT_TRUE(IsAnswered(other));
  EXPECT_TRUE(ServerEndsAStorm(**server, 10'000'000, /*reads=*/true));
  EXPECT_TRUE(IsAnswered(other));
  EXPECT_FALSE(IsAnswered(NewChannel(**server)));
}

TEST(ResetGuard, AnsweredCallsAreNoStorm) {
  const auto server = RpcServer::Start(Guarded(0), {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = NewChannel(**server);
  for (int call = 0; call < 3000; ++call) ASSERT_TRUE(IsAnswered(channel)) << call;
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
}

}  // namespace
}  // namespace baton
