// KV transfers over TCP: one I/O thread with epoll drives a TransferNode and its connections.

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "kvtransfer/byte_stream.h"
#include "kvtransfer/connection_set.h"
#include "kvtransfer/posted_transport.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/transfer_node.h"
#include "kvtransfer/transport.h"

namespace baton {
namespace {

constexpr uint64_t kWakeKey = 0;
constexpr uint64_t kListenKey = 1;
constexpr uint64_t kFirstPeer = 2;
constexpr int64_t kAcceptPauseUs = 100'000;  // when the process has no descriptor left
constexpr int64_t kLongestWaitUs = 1'000'000;

class SocketStream final : public ByteStream {
 public:
  explicit SocketStream(FileDescriptor socket) : socket_(std::move(socket)) {}

  absl::Status ConnectResult() override { return baton::ConnectResult(socket_); }

  absl::StatusOr<int64_t> Read(std::span<const iovec> buffers) override {
    const ssize_t got = Retry(
        [&] { return readv(socket_.get(), buffers.data(), static_cast<int>(buffers.size())); });
    if (got == 0) return absl::UnavailableError("connection closed by the peer");
    return Moved(got);
  }

  absl::StatusOr<int64_t> Write(std::span<const iovec> buffers) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(buffers.data());  // sendmsg only reads it
    message.msg_iovlen = buffers.size();
    return Moved(Retry([&] { return sendmsg(socket_.get(), &message, MSG_NOSIGNAL); }));
  }

  int fd() const { return socket_.get(); }
  uint32_t watched_events = 0;  // by the owner's epoll set

 private:
  template <typename Call>
  static ssize_t Retry(Call call) {
    ssize_t result = call();
    while (result < 0 && errno == EINTR) result = call();
    return result;
  }
  static absl::StatusOr<int64_t> Moved(ssize_t bytes) {
    if (bytes >= 0) return bytes;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    return SocketError("connection lost");
  }

  const FileDescriptor socket_;
};

class TcpTransport final : public PostedTransport, private ConnectionSet::Host {
 public:
  TcpTransport(const TransportOptions& options, const TcpOptions& tcp, FileDescriptor listener,
               FileDescriptor epoll, FileDescriptor wake, std::string address)
      : PostedTransport(options),
        tcp_(tcp),
        address_(std::move(address)),
        listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        node_(options.pool, options.fingerprint, options.epoch),
        connections_(node_, tcp_, *this, kFirstPeer),
        thread_([this] { Run(); }) {}

  ~TcpTransport() override {
    stop_ = true;
    WakeIoThread();
    thread_.join();
  }

  std::string address() const override { return address_; }

 protected:
  absl::Status CheckAddress(const std::string& address) const override {
    return ParseTcpAddress(address).status();
  }
  void WakeIoThread() override {
    const uint64_t one = 1;
    CHECK_EQ(write(wake_.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  }

 private:
  absl::StatusOr<std::unique_ptr<ByteStream>> Connect(const std::string& address,
                                                      PeerId peer) override;
  void Watch(PeerId peer, ByteStream& stream, bool writing) override;

  void Run();
  void OnSocketEvent(const epoll_event& event, int64_t now_us);
  void AcceptAll(int64_t now_us);
  void WatchListener(bool on);
  int WaitMs(int64_t now_us) const;

  const TcpOptions tcp_;
  const std::string address_;
  const FileDescriptor listener_;
  const FileDescriptor epoll_;
  const FileDescriptor wake_;
  const SystemClock clock_;
  std::atomic<bool> stop_ = false;

  // The I/O thread's.
  TransferNode node_;
  ConnectionSet connections_;
  int64_t accept_again_us_ = 0;  // 0: the listener is watched

  std::thread thread_;
};

void TcpTransport::Run() {
  std::array<epoll_event, 64> ready;
  const auto apply_posted = [this](int64_t now_us) {
    for (TransferCommand& command : TakeCommands()) node_.Apply(std::move(command), now_us);
  };
  node_.ApplyPostedBeforeAnnouncements(apply_posted);
  while (!stop_) {
    const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()),
                                 WaitMs(clock_.NowUs()));
    const int64_t now_us = clock_.NowUs();
    apply_posted(now_us);
    for (int i = 0; i < count; ++i) OnSocketEvent(ready[i], now_us);
    if (accept_again_us_ != 0 && now_us >= accept_again_us_) {
      accept_again_us_ = 0;
      WatchListener(true);
    }
    Publish(connections_.EndRound(now_us));
  }
}

void TcpTransport::OnSocketEvent(const epoll_event& event, int64_t now_us) {
  if (event.data.u64 == kWakeKey) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
    return;
  }
  if (event.data.u64 == kListenKey) return AcceptAll(now_us);
  const bool broken = (event.events & (EPOLLERR | EPOLLHUP)) != 0;
  connections_.OnReady(PeerId(event.data.u64), broken || (event.events & EPOLLIN) != 0,
                       broken || (event.events & EPOLLOUT) != 0, now_us);
}

void TcpTransport::AcceptAll(int64_t now_us) {
  while (true) {
    absl::StatusOr<std::optional<FileDescriptor>> socket = AcceptTcp(listener_);
    if (!socket.ok()) {
      WatchListener(false);
      accept_again_us_ = now_us + kAcceptPauseUs;
      return;
    }
    if (!socket->has_value()) return;
    connections_.Accept(std::make_unique<SocketStream>(**std::move(socket)), now_us);
  }
}

absl::StatusOr<std::unique_ptr<ByteStream>> TcpTransport::Connect(const std::string& address,
                                                                  PeerId) {
  const absl::StatusOr<SocketAddress> target = ParseTcpAddress(address);
  CHECK(target.ok()) << target.status();  // checked in the post
  ASSIGN_OR_RETURN(FileDescriptor socket, StartConnectTcp(*target));
  return std::make_unique<SocketStream>(std::move(socket));
}

// A descriptor leaves the epoll set when it is closed.
void TcpTransport::Watch(PeerId peer, ByteStream& stream, bool writing) {
  auto& socket = static_cast<SocketStream&>(stream);  // all streams here are ours
  const uint32_t events = EPOLLIN | (writing ? EPOLLOUT : 0u);
  if (events == socket.watched_events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = peer.value();
  const int operation = socket.watched_events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  CHECK_EQ(epoll_ctl(epoll_.get(), operation, socket.fd(), &event), 0);
  socket.watched_events = events;
}

void TcpTransport::WatchListener(bool on) {
  epoll_event event{};
  event.events = on ? EPOLLIN : 0u;
  event.data.u64 = kListenKey;
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event), 0);
}

int TcpTransport::WaitMs(int64_t now_us) const {
  int64_t next = std::min(connections_.NextTimerUs(), now_us + kLongestWaitUs);
  if (accept_again_us_ != 0) next = std::min(next, accept_again_us_);
  return static_cast<int>(std::max<int64_t>(0, (next - now_us + 999) / 1000));
}

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
        {"max_connections", tcp.max_connections}}) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ", at least 1 needed"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvTransport>> CreateTcpTransport(const std::string& listen_address,
                                                                const std::string& advertise_host,
                                                                TransportOptions options,
                                                                TcpOptions tcp) {
  RETURN_IF_ERROR(CheckTransportOptions(options));
  RETURN_IF_ERROR(CheckTcpOptions(tcp));
  ASSIGN_OR_RETURN(const SocketAddress wanted, ResolveHostPort(listen_address));
  ASSIGN_OR_RETURN(FileDescriptor listener, ListenTcp(wanted));
  ASSIGN_OR_RETURN(SocketAddress advertised, LocalAddress(listener));
  if (!advertise_host.empty()) {
    ASSIGN_OR_RETURN(advertised, ResolveHost(advertise_host, advertised.port()));
  }
  if (IsWildcard(advertised)) {
    return absl::InvalidArgumentError(
        absl::StrCat("nobody can connect to ", advertised.host(), ": name an advertise_host"));
  }
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (epoll.get() < 0) return SocketError("epoll_create1");
  FileDescriptor wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (wake.get() < 0) return SocketError("eventfd");
  RETURN_IF_ERROR(AddToEpoll(epoll, wake, kWakeKey));
  RETURN_IF_ERROR(AddToEpoll(epoll, listener, kListenKey));
  return std::make_unique<TcpTransport>(options, tcp, std::move(listener), std::move(epoll),
                                        std::move(wake), FormatTcpAddress(advertised));
}

}  // namespace baton
