// KV transfers over sockets: one I/O thread with epoll drives a TransferNode and its connections,
// over TCP, over Unix sockets beside shared memory, or both. Senders open one connection for each
// receiver's address; receivers accept.
//
// After shared memory was in use the thread looks around for a moment before it sleeps: the answer
// of a peer on the same host is there sooner than a sleeper could be woken. It yields between
// looks, so a processor that others need is not held.

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "kvtransfer/posted_transport.h"
#include "kvtransfer/shared_pool.h"
#include "kvtransfer/shm_connection.h"
#include "kvtransfer/stream_connection.h"
#include "kvtransfer/tcp_connection.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/transfer_address.h"
#include "kvtransfer/transfer_node.h"
#include "kvtransfer/transport.h"
#include "kvtransfer/unix_socket.h"

namespace baton {
namespace {

constexpr uint64_t kWakeKey = 0;
constexpr uint64_t kTcpListenKey = 1;
constexpr uint64_t kShmListenKey = 2;
constexpr uint64_t kFirstPeer = 3;
constexpr int64_t kAcceptPauseUs = 100'000;  // when the process has no descriptor left
constexpr int64_t kLongestWaitUs = 1'000'000;
constexpr int64_t kLookAroundUs = 50;

// What a SocketTransport listens at, and what it lends from.
struct SocketParts {
  std::string address;
  FileDescriptor tcp_listener;     // none: no TCP
  FileDescriptor shm_listener;     // none: no shared memory
  std::optional<LentBlocks> lent;  // with shm_listener
  FileDescriptor epoll;
  FileDescriptor wake;
};

class SocketTransport final : public PostedTransport {
 public:
  SocketTransport(const TransportOptions& options, const TcpOptions& tcp, SocketParts parts)
      : PostedTransport(options),
        tcp_(tcp),
        parts_(std::move(parts)),
        node_(options.pool, options.fingerprint, options.epoch),
        thread_([this] { Run(); }) {}

  ~SocketTransport() override {
    stop_ = true;
    WakeIoThread();
    thread_.join();
  }

  std::string address() const override { return parts_.address; }

 protected:
  absl::Status CheckAddress(const std::string& address) const override;
  void WakeIoThread() override;

 private:
  void Run();
  void OnSocketEvent(const epoll_event& event, int64_t now_us);
  void AcceptAll(uint64_t key, int64_t now_us);
  void OpenLinks(int64_t now_us);
  bool OpenLink(const std::string& address, std::span<const std::string> ways, int64_t now_us);
  StreamConnection& Add(bool shm, FileDescriptor socket, std::string address, int64_t now_us);
  void RunTimers(int64_t now_us);
  void SendFrames(int64_t now_us);
  void ReadOn(int64_t now_us);
  void PumpAll(int64_t now_us);
  void Close(PeerId peer, const absl::Status& why);
  void Watch(StreamConnection& connection);
  void WatchListeners(bool on);
  bool TakesShm() const { return parts_.lent.has_value(); }
  int Wait(std::span<epoll_event> ready);
  int WaitMs(int64_t now_us) const;

  const TcpOptions tcp_;
  SocketParts parts_;  // `lent` is the I/O thread's
  const SystemClock clock_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> posted_ = false;    // something happened that the I/O thread has not seen
  std::atomic<bool> sleeping_ = false;  // it must be woken to see it

  // The I/O thread's.
  TransferNode node_;
  std::map<PeerId, std::unique_ptr<StreamConnection>> connections_;
  std::map<PeerId, std::vector<std::string>> other_ways_;  // to try when this one does not open
  int64_t look_until_us_ = 0;                              // before sleeping
  int32_t accepted_ = 0;                                   // of connections_
  uint64_t next_peer_ = kFirstPeer;
  int64_t accept_again_us_ = 0;  // 0: the listener is watched

  std::thread thread_;
};

absl::Status SocketTransport::CheckAddress(const std::string& address) const {
  return UsableAddresses(address, parts_.tcp_listener.get() >= 0, TakesShm()).status();
}

void SocketTransport::WakeIoThread() {
  posted_ = true;
  if (!sleeping_.exchange(false)) return;
  const uint64_t one = 1;
  CHECK_EQ(write(parts_.wake.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
}

void SocketTransport::Run() {
  std::array<epoll_event, 64> ready;
  const auto apply_posted = [this](int64_t now_us) {
    for (TransferCommand& command : TakeCommands()) node_.Apply(std::move(command), now_us);
  };
  node_.ApplyPostedBeforeAnnouncements(apply_posted);
  while (!stop_) {
    const int count = Wait(ready);
    const int64_t now_us = clock_.NowUs();
    apply_posted(now_us);
    for (int i = 0; i < count; ++i) OnSocketEvent(ready[i], now_us);
    ReadOn(now_us);
    RunTimers(now_us);
    OpenLinks(now_us);
    SendFrames(now_us);
    PumpAll(now_us);
    // Only after every block of an ended transfer is out of our hands may the engine hear of its
    // end.
    for (const auto& [peer, connection] : connections_) connection->ReleaseEndedTransfers();
    std::vector<TransferEvent> events = node_.TakeEvents();
    for (const TransferEvent& event : events) {
      const bool sent = event.kind == TransferEvent::Kind::kSent ||
                        event.kind == TransferEvent::Kind::kSendFailed;
      if (sent && parts_.lent) parts_.lent->Return(event.id);
    }
    Publish(std::move(events));
  }
}

// Looks for a moment where that may pay, then sleeps.
int SocketTransport::Wait(std::span<epoll_event> ready) {
  const int size = static_cast<int>(ready.size());
  const auto poll = [&](int timeout_ms) {
    return epoll_wait(parts_.epoll.get(), ready.data(), size, timeout_ms);
  };
  int64_t now_us = clock_.NowUs();
  for (; now_us < look_until_us_; now_us = clock_.NowUs()) {
    const int count = poll(0);
    if (count > 0 || posted_.exchange(false) || stop_) return count;
    sched_yield();
  }
  sleeping_ = true;
  const bool seen = posted_.exchange(false);  // posted before we said that we sleep
  const int count = poll(seen ? 0 : WaitMs(now_us));
  sleeping_ = false;
  posted_ = false;
  return count;
}

void SocketTransport::OnSocketEvent(const epoll_event& event, int64_t now_us) {
  if (event.data.u64 == kWakeKey) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(parts_.wake.get(), &count, sizeof(count));
    return;
  }
  if (event.data.u64 < kFirstPeer) return AcceptAll(event.data.u64, now_us);
  const auto it = connections_.find(PeerId(event.data.u64));
  if (it == connections_.end()) return;  // closed earlier in this round
  StreamConnection& connection = *it->second;
  if (connection.AnswersAtOnce()) look_until_us_ = now_us + kLookAroundUs;
  absl::Status status;
  if ((event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0)
    status = connection.OnWritable(now_us);
  if (status.ok() && (event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
    status = connection.OnReadable(now_us);
  }
  if (!status.ok()) Close(connection.peer(), status);
}

// What lies read and not taken apart, after a long turn.
void SocketTransport::ReadOn(int64_t now_us) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    StreamConnection& connection = *(it++)->second;  // Close erases it
    if (!connection.HasUnread()) continue;
    if (const absl::Status status = connection.OnReadable(now_us); !status.ok()) {
      Close(connection.peer(), status);
    }
  }
}

StreamConnection& SocketTransport::Add(bool shm, FileDescriptor socket, std::string address,
                                       int64_t now_us) {
  const PeerId peer(next_peer_++);
  ConnectionParts parts{.node = node_,
                        .options = tcp_,
                        .peer = peer,
                        .socket = std::move(socket),
                        .address = std::move(address),
                        .now_us = now_us};
  std::unique_ptr<StreamConnection>& added = connections_[peer];
  if (shm) {
    added = std::make_unique<ShmConnection>(std::move(parts), *parts_.lent);
  } else {
    added = std::make_unique<TcpConnection>(std::move(parts));
  }
  return *added;
}

void SocketTransport::AcceptAll(uint64_t key, int64_t now_us) {
  const bool shm = key == kShmListenKey;
  while (true) {
    absl::StatusOr<std::optional<FileDescriptor>> socket =
        shm ? AcceptUnix(parts_.shm_listener) : AcceptTcp(parts_.tcp_listener);
    if (!socket.ok()) {
      WatchListeners(false);
      accept_again_us_ = now_us + kAcceptPauseUs;
      return;
    }
    if (!socket->has_value()) return;
    if (accepted_ >= tcp_.max_connections) continue;  // closes it
    if (shm && !CheckSameUser(**socket).ok()) continue;
    ++accepted_;
    Watch(Add(shm, **std::move(socket), "", now_us));
  }
}

void SocketTransport::OpenLinks(int64_t now_us) {
  for (const std::string& address : node_.sender().TakeConnects()) {
    const absl::StatusOr<std::vector<std::string>> ways =
        UsableAddresses(address, parts_.tcp_listener.get() >= 0, TakesShm());
    if (ways.ok()) {
      OpenLink(address, *ways, now_us);
    } else {  // good in the post; an interface that it names may have gone since
      node_.sender().OnLinkDown(address, ways.status());
    }
  }
}

// Over the first of these that connects; the others stand by until it is open. False when none
// does, which the sender is told.
bool SocketTransport::OpenLink(const std::string& address, std::span<const std::string> ways,
                               int64_t now_us) {
  absl::Status why;
  for (; !ways.empty(); ways = ways.subspan(1)) {
    const bool shm = IsShmAddress(ways.front());
    absl::StatusOr<FileDescriptor> socket = StartConnect(ways.front());
    if (!socket.ok()) {
      why = socket.status();
      continue;
    }
    StreamConnection& connection = Add(shm, *std::move(socket), address, now_us);
    other_ways_[connection.peer()].assign(ways.begin() + 1, ways.end());
    Watch(connection);
    return true;
  }
  node_.sender().OnLinkDown(address, why);
  return false;
}

void SocketTransport::RunTimers(int64_t now_us) {
  node_.OnTimer(now_us);
  if (accept_again_us_ != 0 && now_us >= accept_again_us_) {
    accept_again_us_ = 0;
    WatchListeners(true);
  }
  for (auto it = connections_.begin(); it != connections_.end();) {
    StreamConnection& connection = *(it++)->second;  // Close erases it
    if (const absl::Status status = connection.OnTimer(now_us); !status.ok()) {
      Close(connection.peer(), status);
    }
  }
}

void SocketTransport::SendFrames(int64_t now_us) {
  for (const auto& [peer, frame] : node_.TakeFrames(now_us)) {
    const auto it = connections_.find(peer);
    if (it == connections_.end()) continue;  // lost since; its transfers have failed
    if (const absl::Status status = it->second->Send(frame); !status.ok()) Close(peer, status);
  }
}

void SocketTransport::PumpAll(int64_t now_us) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    StreamConnection& connection = *(it++)->second;  // Close erases it
    if (!connection.WantsToWrite()) {
      Watch(connection);
      continue;
    }
    if (connection.AnswersAtOnce()) look_until_us_ = now_us + kLookAroundUs;
    const absl::Status status = connection.Pump(now_us);
    if (status.ok()) {
      Watch(connection);
    } else {
      Close(connection.peer(), status);
    }
  }
}

void SocketTransport::Close(PeerId peer, const absl::Status& why) {
  const auto it = connections_.find(peer);
  // Closing the descriptor takes it out of the epoll set.
  const std::unique_ptr<StreamConnection> connection = std::move(it->second);
  connections_.erase(it);
  if (!connection->opened_by_us()) --accepted_;
  const auto ways = other_ways_.find(peer);
  const std::vector<std::string> others =
      ways == other_ways_.end() ? std::vector<std::string>() : std::move(ways->second);
  if (ways != other_ways_.end()) other_ways_.erase(ways);
  if (!connection->open() && !others.empty()) {
    OpenLink(connection->address(), others, clock_.NowUs());
  } else {
    connection->Lost(why);
  }
}

void SocketTransport::Watch(StreamConnection& connection) {
  const uint32_t events = EPOLLIN | (connection.WantsToWrite() ? EPOLLOUT : 0u);
  if (events == connection.watched_events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection.peer().value();
  const int operation = connection.watched_events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  CHECK_EQ(epoll_ctl(parts_.epoll.get(), operation, connection.fd(), &event), 0);
  connection.watched_events = events;
}

void SocketTransport::WatchListeners(bool on) {
  epoll_event event{};
  event.events = on ? EPOLLIN : 0u;
  for (const auto& [listener, key] : {std::pair(&parts_.tcp_listener, kTcpListenKey),
                                      std::pair(&parts_.shm_listener, kShmListenKey)}) {
    if (listener->get() < 0) continue;
    event.data.u64 = key;
    CHECK_EQ(epoll_ctl(parts_.epoll.get(), EPOLL_CTL_MOD, listener->get(), &event), 0);
  }
}

int SocketTransport::WaitMs(int64_t now_us) const {
  int64_t next = std::min(node_.NextDeadlineUs(), now_us + kLongestWaitUs);
  if (accept_again_us_ != 0) next = std::min(next, accept_again_us_);
  for (const auto& [peer, connection] : connections_) {
    next = std::min(next, connection->HasUnread() ? now_us : connection->NextTimerUs());
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
    ASSIGN_OR_RETURN(parts.lent, LentBlocks::Create(options.pool));
    ASSIGN_OR_RETURN(parts.shm_listener, ListenUnix(endpoints.shm_name));
  }
  if (!endpoints.tcp_listen.empty()) {
    ASSIGN_OR_RETURN(const SocketAddress wanted, ResolveHostPort(endpoints.tcp_listen));
    ASSIGN_OR_RETURN(parts.tcp_listener, ListenTcp(wanted));
    ASSIGN_OR_RETURN(const SocketAddress advertised,
                     AdvertisedAddress(parts.tcp_listener, endpoints.tcp_advertise_host));
    addresses.push_back(FormatTcpAddress(advertised));
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
