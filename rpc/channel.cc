#include "rpc/channel.h"

#include <algorithm>
#include <chrono>

namespace baton {

std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    LostCalls lost_calls, Pings pings) {
  grpc::ChannelArguments arguments;
  if (lost_calls == LostCalls::kFail) arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  if (pings == Pings::kOften) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // In spite of its name this is also the timeout of one attempt. A busy machine answers late.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // gRPC would decompress an answer before it checks the size.
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetMaxReceiveMessageSize(kMaxTokenizerMessageBytes);
  return grpc::CreateCustomChannel(
      address, credentials == nullptr ? grpc::InsecureChannelCredentials() : credentials,
      arguments);
}

std::chrono::system_clock::time_point DeadlineIn(int64_t timeout_ms) {
  return std::chrono::system_clock::now() +
         std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, kMaxTimeoutMs));
}

}  // namespace baton
