#include "rpc/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "rpc/channel.h"

namespace baton {

namespace {

// gRPC inflates a message before it looks at its size, so a small one could take any memory.
void ForbidCompression(grpc::ServerBuilder& builder) {
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, const std::vector<grpc::Service*>& services,
    std::vector<std::string> names) {
  ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(options.listen));
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });

  grpc::ServerBuilder builder;
  int bound_port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &bound_port);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  ForbidCompression(builder);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinimumPingIntervalMs);
  grpc::ResourceQuota quota("baton");
  quota.Resize(static_cast<size_t>(options.memory_mib) << 20);
  builder.SetResourceQuota(quota);
  for (grpc::Service* service : services) builder.RegisterService(service);

  std::unique_ptr<RpcServer> out(new RpcServer);
  out->server_ = builder.BuildAndStart();
  if (out->server_ == nullptr || bound_port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen));
  }
  out->port_ = bound_port;
  out->address_ = JoinHostPort(wanted.host, bound_port);
  out->names_ = std::move(names);
  out->SetServing(false);
  return out;
}

RpcServer::~RpcServer() { Shutdown(0); }

void RpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus(serving);
  for (const std::string& name : names_) health->SetServingStatus(name, serving);
}

void RpcServer::Shutdown(int64_t grace_ms) {
  if (server_ == nullptr || shut_down_) return;
  shut_down_ = true;
  server_->Shutdown(DeadlineIn(grace_ms));
  server_->Wait();
}

}  // namespace baton
