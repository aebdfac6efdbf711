// Creates client channels with the keepalive, backoff and limits that rpc/rpc_server.h expects of
// its peers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

namespace baton {

// Keepalive of clients, and the limit that servers enforce. A server closes a connection that pings
// more often than kMinimumPingIntervalMs. Servers have their own ping interval
// (rpc_server_options.h).
inline constexpr int32_t kKeepaliveTimeMs = 10'000;
inline constexpr int32_t kKeepaliveTimeoutMs = 5'000;
inline constexpr int32_t kMinimumPingIntervalMs = 5'000;

// Timeout of one attempt to connect, including the HTTP/2 handshake.
inline constexpr int32_t kConnectTimeoutMs = 5'000;

// Limit for messages that a client receives. A tokenizer's description is the largest message.
inline constexpr int32_t kMaxTokenizerMessageBytes = 64 << 20;

// What gRPC does with a call that fails before it has reached the server.
enum class LostCalls : uint8_t {
  kSentAgain,
  // The call fails as UNAVAILABLE. For callers that go on with another server. Each open call then
  // takes 6.5 KB less memory: gRPC keeps nothing for sending it again.
  kFail,
};

// Whether a channel pings its server while it is idle.
enum class Pings : uint8_t {
  kOften,  // every kKeepaliveTimeMs; our servers allow it
  kNone,   // for servers of others, which close connections that ping so often
};

// Returns a channel that connects lazily and retries a lost connection after 0.1 to 1 second. It
// does not share connections with other channels. `credentials`: of rpc/tls_credentials.h; null: no
// encryption.
std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials = nullptr,
    LostCalls lost_calls = LostCalls::kSentAgain, Pings pings = Pings::kOften);

// Upper limit of every call's timeout.
inline constexpr int64_t kMaxTimeoutMs = int64_t{365} * 86'400'000;

// Returns the time `timeout_ms` from now, clamped to [now, now + kMaxTimeoutMs].
std::chrono::system_clock::time_point DeadlineIn(int64_t timeout_ms);

}  // namespace baton
