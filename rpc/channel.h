// Client channels with the keepalive, backoff and limits that rpc/rpc_server.h expects of its
// peers.
//
// Thread safety: pure functions; channels are thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

namespace baton {

// A client's pings, and what a server allows of them: one that sees them more often closes the
// connection. How often a server pings is its own setting (rpc_server_options.h).
inline constexpr int32_t kKeepaliveTimeMs = 10'000;
inline constexpr int32_t kKeepaliveTimeoutMs = 5'000;
inline constexpr int32_t kMinimumPingIntervalMs = 5'000;

// One attempt to connect, with its HTTP/2 handshake.
inline constexpr int32_t kConnectTimeoutMs = 5'000;

// A tokenizer's description is the largest message there is.
inline constexpr int32_t kMaxTokenizerMessageBytes = 64 << 20;

// Connects lazily; retries a lost connection after 0.1 to 1 second. The channel has connections of
// its own.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// No call waits longer, whatever it is told.
inline constexpr int64_t kMaxTimeoutMs = int64_t{365} * 86'400'000;

// The deadline `timeout_ms` from now: now where that is negative, kMaxTimeoutMs at most.
std::chrono::system_clock::time_point DeadlineIn(int64_t timeout_ms);

}  // namespace baton
