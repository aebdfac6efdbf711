// KV transfers over TCP: one I/O thread with epoll drives a TransferNode and its connections.
// Senders open one connection for each receiver's address; receivers accept.

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "kvtransfer/posted_transport.h"
#include "kvtransfer/tcp_connection.h"
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

class TcpTransport final : public PostedTransport {
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
  void Run();
  void OnSocketEvent(const epoll_event& event, int64_t now_us);
  void AcceptAll(int64_t now_us);
  void OpenLinks(int64_t now_us);
  void RunTimers(int64_t now_us);
  void SendFrames();
  void PumpAll(int64_t now_us);
  void Close(PeerId peer, const absl::Status& why);
  void Watch(TcpConnection& connection);
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
  std::map<PeerId, std::unique_ptr<TcpConnection>> connections_;
  int32_t accepted_ = 0;  // of connections_
  uint64_t next_peer_ = kFirstPeer;
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
    RunTimers(now_us);
    OpenLinks(now_us);
    SendFrames();
    PumpAll(now_us);
    // Only after every block of an ended transfer is out of our hands may the engine hear of its
    // end.
    for (const auto& [peer, connection] : connections_) connection->ReleaseEndedTransfers();
    Publish(node_.TakeEvents());
  }
}

void TcpTransport::OnSocketEvent(const epoll_event& event, int64_t now_us) {
  if (event.data.u64 == kWakeKey) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
    return;
  }
  if (event.data.u64 == kListenKey) return AcceptAll(now_us);
  const auto it = connections_.find(PeerId(event.data.u64));
  if (it == connections_.end()) return;  // closed earlier in this round
  TcpConnection& connection = *it->second;
  absl::Status status;
  if ((event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0)
    status = connection.OnWritable(now_us);
  if (status.ok() && (event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
    status = connection.OnReadable(now_us);
  }
  if (!status.ok()) Close(connection.peer(), status);
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
    if (accepted_ >= tcp_.max_connections) continue;  // closes it
    const PeerId peer(next_peer_++);
    const auto [it, inserted] = connections_.emplace(
        peer, std::make_unique<TcpConnection>(node_, tcp_, peer, **std::move(socket), now_us));
    ++accepted_;
    Watch(*it->second);
  }
}

void TcpTransport::OpenLinks(int64_t now_us) {
  for (std::string& address : node_.sender().TakeConnects()) {
    const absl::StatusOr<SocketAddress> target = ParseTcpAddress(address);
    CHECK(target.ok()) << target.status();  // checked in the post
    absl::StatusOr<FileDescriptor> socket = StartConnectTcp(*target);
    if (!socket.ok()) {
      node_.sender().OnLinkDown(address, socket.status());
      continue;
    }
    const PeerId peer(next_peer_++);
    const auto [it, inserted] = connections_.emplace(
        peer, std::make_unique<TcpConnection>(node_, tcp_, peer, *std::move(socket),
                                              std::move(address), now_us));
    Watch(*it->second);
  }
}

void TcpTransport::RunTimers(int64_t now_us) {
  node_.OnTimer(now_us);
  if (accept_again_us_ != 0 && now_us >= accept_again_us_) {
    accept_again_us_ = 0;
    WatchListener(true);
  }
  for (auto it = connections_.begin(); it != connections_.end();) {
    TcpConnection& connection = *(it++)->second;  // Close erases it
    if (const absl::Status status = connection.OnTimer(now_us); !status.ok()) {
      Close(connection.peer(), status);
    }
  }
}

void TcpTransport::SendFrames() {
  for (const auto& [peer, frame] : node_.TakeFrames()) {
    const auto it = connections_.find(peer);
    if (it == connections_.end()) continue;  // lost since; its transfers have failed
    if (const absl::Status status = it->second->Send(frame); !status.ok()) Close(peer, status);
  }
}

void TcpTransport::PumpAll(int64_t now_us) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    TcpConnection& connection = *(it++)->second;  // Close erases it
    if (!connection.WantsToWrite()) {
      Watch(connection);
      continue;
    }
    const absl::Status status = connection.Pump(now_us);
    if (status.ok()) {
      Watch(connection);
    } else {
      Close(connection.peer(), status);
    }
  }
}

void TcpTransport::Close(PeerId peer, const absl::Status& why) {
  const auto it = connections_.find(peer);
  const std::unique_ptr<TcpConnection> connection = std::move(it->second);
  connections_.erase(it);
  if (!connection->opened_by_us()) --accepted_;
  connection->Lost(why);  // closing the descriptor takes it out of the epoll set
}

void TcpTransport::Watch(TcpConnection& connection) {
  const uint32_t events = EPOLLIN | (connection.WantsToWrite() ? EPOLLOUT : 0u);
  if (events == connection.watched_events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection.peer().value();
  const int operation = connection.watched_events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  CHECK_EQ(epoll_ctl(epoll_.get(), operation, connection.fd(), &event), 0);
  connection.watched_events = events;
}

void TcpTransport::WatchListener(bool on) {
  epoll_event event{};
  event.events = on ? EPOLLIN : 0u;
  event.data.u64 = kListenKey;
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event), 0);
}

int TcpTransport::WaitMs(int64_t now_us) const {
  int64_t next = std::min(node_.NextDeadlineUs(), now_us + kLongestWaitUs);
  if (accept_again_us_ != 0) next = std::min(next, accept_again_us_);
  for (const auto& [peer, connection] : connections_) {
    next = std::min(next, connection->NextTimerUs());
  }
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
