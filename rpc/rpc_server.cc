#include "rpc/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <mutex>
#include <utility>

#include "common/check.h"
#include "common/descriptor_limit.h"
#include "common/host_port.h"
#include "common/listening_sockets.h"
#include "common/status_macros.h"
#include "rpc/channel.h"
#include "rpc/grpc_log.h"
#include "rpc/raw_message.h"
#include "rpc/rpc_access.h"
#include "rpc/tls_credentials.h"

namespace baton {

namespace {

// Timeout of the HTTP/2 handshake, for connections that have sent something else.
constexpr int kHandshakeTimeoutMs = 10'000;
constexpr int64_t kFewDescriptors = 4096;

// gRPC decompresses a message before it checks the size, so a small message could take any amount
// of memory.
void ForbidCompression(grpc::ServerBuilder& builder) {
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

// Raises the descriptor limit and returns it. Warns once if it is low.
int64_t DescriptorLimit() {
  static const int64_t limit = [] {
    const int64_t raised = RaiseDescriptorLimit();
    LOG_IF(WARNING, raised < kFewDescriptors)
        << "this process may open only " << raised << " files and connections; " << kFewDescriptors
        << " or more are recommended (raise ulimit -n)";
    return raised;
  }();
  return limit;
}

// Sets the same socket options as gRPC does for connections that it accepts itself.
void HandOver(FileDescriptor socket, int timeout_ms,
              grpc::experimental::ExternalConnectionAcceptor& connections) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = socket.Release();
  connections.HandleNewConnection(&connection);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, const std::vector<grpc::Service*>& services,
    std::vector<std::string> names) {
  RETURN_IF_ERROR(CheckMethodsHaveRows(names));
  RETURN_IF_ERROR(CheckFleetTls(options.tls));
  ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(options.listen));
  ASSIGN_OR_RETURN(ListeningSockets listening, ListenAt(wanted));
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    LimitProtobufLog();
    LimitGrpcLog();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });

  grpc::ServerBuilder builder;
  std::unique_ptr<RpcServer> out(new RpcServer);
  out->connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      ServerCredentialsOf(options.tls, options.grpc_public));
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  ForbidCompression(builder);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.idle_connection_ms);
  if (options.max_connection_age_ms > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, options.max_connection_age_ms);
  }
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinimumPingIntervalMs);
  grpc::ResourceQuota quota("baton");
  quota.Resize(static_cast<size_t>(options.memory_mib) << 20);
  builder.SetResourceQuota(quota);
  for (grpc::Service* service : services) builder.RegisterService(service);

  out->server_ = builder.BuildAndStart();
  if (out->server_ == nullptr) return absl::InternalError("the gRPC server did not start");
  out->port_ = listening.port;
  out->address_ = JoinHostPort(wanted.host, listening.port);
  ResetLimits resets = options.resets;
  resets.unanswered += options.max_concurrent_streams;
  out->reset_guard_ = std::make_unique<ResetGuard>(out->port_, out->address_, resets);
  out->acceptor_ = std::make_unique<ConnectionAcceptor>(
      std::move(listening.sockets), out->address_,
      LimitsForDescriptors(DescriptorLimit(), options.tls.any()),
      [connections = out->connections_.get(), guard = out->reset_guard_.get(),
       timeout_ms = options.keepalive_timeout_ms](FileDescriptor socket) {
        if (guard->Admits(socket.get())) HandOver(std::move(socket), timeout_ms, *connections);
      });
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
  acceptor_.reset();
  reset_guard_.reset();
  server_->Shutdown(DeadlineIn(grace_ms));
  server_->Wait();
}

}  // namespace baton
