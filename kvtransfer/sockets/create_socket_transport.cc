// CreateSocketTransport and CreateTcpTransport: check the options, then claim names and ports.

#include "kvtransfer/sockets/create_socket_transport.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "kvtransfer/nccl/nccl_runtime.h"
#include "kvtransfer/protocol/posted_transport.h"
#include "kvtransfer/shm/shared_pool.h"
#include "kvtransfer/sockets/socket_transport.h"
#include "kvtransfer/sockets/tcp_socket.h"
#include "kvtransfer/sockets/transfer_address.h"
#include "kvtransfer/sockets/unix_socket.h"
#include "kvtransfer/transport.h"

namespace baton {
namespace {

absl::Status AddToEpoll(const FileDescriptor& epoll, const FileDescriptor& fd, uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return SocketError("epoll_ctl");
  return absl::OkStatus();
}

absl::Status CheckTcpOptions(const TcpOptions& tcp) {
  for (const auto& [name, value] :
       {std::pair<const char*, int64_t>{"connect_timeout_ms", tcp.connect_timeout_ms},
        {"handshake_timeout_ms", tcp.handshake_timeout_ms},
        {"frame_timeout_ms", tcp.frame_timeout_ms},
        {"ping_interval_ms", tcp.ping_interval_ms},
        {"silence_timeout_ms", tcp.silence_timeout_ms},
        {"idle_timeout_ms", tcp.idle_timeout_ms},
        {"max_connections", tcp.max_connections},
        {"max_opening", tcp.max_opening}}) {
    if (value < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " ", value, " is below the minimum of 1"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvTransport>> CreateSocketTransport(const SocketEndpoints& endpoints,
                                                                   TransportOptions options,
                                                                   TcpOptions tcp) {
  RETURN_IF_ERROR(CheckTransportOptions(options));
  RETURN_IF_ERROR(CheckTcpOptions(tcp));
  SocketParts parts;
  std::vector<std::string> addresses;
  if (!endpoints.shm_name.empty()) {
    addresses.push_back(FormatShmAddress(endpoints.shm_name));
    RETURN_IF_ERROR(ParseShmAddress(addresses.back()).status());
    if (options.pool->memory() == PoolMemory::kHost) {
      ASSIGN_OR_RETURN(parts.lent, LentBlocks::Create(*options.pool));
    } else {
      ASSIGN_OR_RETURN(parts.slots, LentFile::Create(*options.pool));
    }
    ASSIGN_OR_RETURN(parts.shm_listener, ListenUnix(endpoints.shm_name));
  }
  if (!endpoints.tcp_listen.empty()) {
    ASSIGN_OR_RETURN(const SocketAddress wanted, ResolveHostPort(endpoints.tcp_listen));
    ASSIGN_OR_RETURN(parts.tcp_listener, ListenTcp(wanted));
    ASSIGN_OR_RETURN(const SocketAddress advertised,
                     AdvertisedAddress(parts.tcp_listener, endpoints.tcp_advertise_host));
    addresses.push_back(FormatTcpAddress(advertised));
    if (endpoints.tls.any()) {
      ASSIGN_OR_RETURN(parts.tls, TransferTls::Open(endpoints.tls));
    }
  }
  if (endpoints.nccl && !endpoints.tcp_listen.empty()) {
    absl::StatusOr<std::unique_ptr<NcclRuntime>> nccl =
        NcclRuntime::Open(*endpoints.nccl, *options.pool);
    if (absl::IsInvalidArgument(nccl.status())) return nccl.status();
    if (nccl.ok()) {
      parts.nccl = *std::move(nccl);
    } else {
      TellFallback(*endpoints.nccl, nccl.status());
    }
  }
  if (addresses.empty())
    return absl::InvalidArgumentError("neither tcp_listen nor shm_name is set");
  parts.address = absl::StrJoin(addresses, ",");
  parts.epoll = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (parts.epoll.get() < 0) return SocketError("epoll_create1");
  parts.wake = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (parts.wake.get() < 0) return SocketError("eventfd");
  for (const auto& [fd, key] :
       {std::pair(&parts.wake, kWakeKey), std::pair(&parts.tcp_listener, kTcpListenKey),
        std::pair(&parts.shm_listener, kShmListenKey)}) {
    if (fd->get() >= 0) RETURN_IF_ERROR(AddToEpoll(parts.epoll, *fd, key));
  }
  return std::make_unique<SocketTransport>(options, tcp, std::move(parts));
}

absl::StatusOr<std::unique_ptr<KvTransport>> CreateTcpTransport(const std::string& listen_address,
                                                                const std::string& advertise_host,
                                                                TransportOptions options,
                                                                TcpOptions tcp) {
  if (listen_address.empty()) return absl::InvalidArgumentError("listen_address is empty");
  return CreateSocketTransport(
      {.tcp_listen = listen_address, .tcp_advertise_host = advertise_host, .shm_name = ""},
      std::move(options), tcp);
}

}  // namespace baton
