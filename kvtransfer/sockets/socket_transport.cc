#include "kvtransfer/sockets/socket_transport.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kvtransfer/shm/host_shm_connection.h"
#include "kvtransfer/shm/staged_shm_connection.h"
#include "kvtransfer/sockets/tcp_connection.h"
#include "kvtransfer/sockets/tcp_socket.h"
#include "kvtransfer/sockets/transfer_address.h"
#include "kvtransfer/sockets/unix_socket.h"

namespace baton {
namespace {

constexpr int64_t kAcceptPauseUs = 100'000;  // pause after the process ran out of descriptors
// Limit of connections accepted in one round, so that a peer that connects constantly cannot delay
// the others.
constexpr int32_t kAcceptsAtOnce = 16;
constexpr int64_t kLongestWaitUs = 1'000'000;
constexpr int64_t kLookAroundUs = 50;
constexpr int64_t kRoundsBeforeYield = 64;  // rounds that only wait for the pool's copies
// Limit of bytes that a post may checksum and write on the engine's own thread.
constexpr int64_t kBytesHere = 16 << 10;

}  // namespace

SocketTransport::SocketTransport(const TransportOptions& options, const TcpOptions& tcp,
                                 SocketParts parts)
    : PostedTransport(options),
      tcp_(tcp),
      parts_(std::move(parts)),
      rounds_(options, tcp_, *this, &clock_) {
  if (parts_.nccl) parts_.nccl->Start([this] { Wake(); });
  thread_ = std::thread([this] { Run(); });
}

SocketTransport::~SocketTransport() {
  stop_ = true;
  Wake();
  thread_.join();
  rounds_.Clear();  // the connections' destructors abort the NCCL communicators
  if (parts_.nccl) parts_.nccl->Stop();
}

absl::Status SocketTransport::CheckAddress(const std::string& address) const {
  if (!address.empty() && address == good_address_) return absl::OkStatus();
  RETURN_IF_ERROR(WaysTo(address).status());
  good_address_ = address;
  return absl::OkStatus();
}

void SocketTransport::WakeIoThread() {
  unsaid_ = false;
  if (!RoundHere()) Wake();
}

// Delays a new transfer until its first announcement, or until the engine polls. By then the engine
// has posted everything else. This saves one round and one write.
void SocketTransport::WakeForStart() {
  unsaid_ = PostsHere();
  if (!unsaid_) Wake();
}

std::vector<TransferEvent> SocketTransport::Poll() {
  if (unsaid_) WakeIoThread();
  return PostedTransport::Poll();
}

void SocketTransport::Wake() {
  posted_ = true;
  if (!sleeping_.exchange(false)) return;
  const uint64_t one = 1;
  CHECK_EQ(write(parts_.wake.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
}

void SocketTransport::Run() {
  while (!stop_) {
    Wait();
    const std::lock_guard lock(round_mutex_);
    Round();
    const bool copies = rounds_.pool_wait() == PoolWait::kCopy;
    if (copies && rounds_waiting_ > kRoundsBeforeYield) sched_yield();
  }
}

void SocketTransport::Round() {
  const int64_t now_us = clock_.NowUs();
  if (accept_again_us_ != 0 && now_us >= accept_again_us_) {
    accept_again_us_ = 0;
    WatchListeners(true);
  }
  rounds_.Round(now_us);
  if (rounds_.expects_answer()) look_until_us_ = now_us + kLookAroundUs;
  rounds_waiting_ = rounds_.pool_wait() == PoolWait::kCopy ? rounds_waiting_ + 1 : 0;
  sleep_until_us_ = NextWakeUs(now_us);
}

void SocketTransport::DeliverReadiness(int64_t now_us) {
  for (const epoll_event& event : ready_) OnSocketEvent(event, now_us);
}

void SocketTransport::QueueEvents(std::vector<TransferEvent> events) {
  for (const TransferEvent& event : events) {
    const bool sent =
        event.kind == TransferEvent::Kind::kSent || event.kind == TransferEvent::Kind::kSendFailed;
    if (sent && parts_.lent) parts_.lent->Return(event.id);
  }
  Queue(std::move(events));
}

bool SocketTransport::RoundHere() {
  if (!PostsHere()) return false;
  const std::unique_lock lock(round_mutex_, std::try_to_lock);
  TransferSender& sender = rounds_.node().sender();
  // With several transfers the I/O thread is running anyway, and writes for all of them at once.
  if (!lock.owns_lock() || sender.transfers() > 1) return false;
  const int64_t now_us = clock_.NowUs();
  rounds_.ApplyPosted(now_us);
  bool all = !sender.wants_connects();
  int64_t next_us = rounds_.node().NextDeadlineUs();
  for (const PeerId peer : rounds_.SendFrames(now_us)) {
    StreamConnection* const connection = rounds_.Find(peer);
    if (connection == nullptr) continue;
    all &= WriteHere(*connection, now_us);
    next_us = std::min(next_us, connection->NextTimerUs());
  }
  rounds_.QueueEvents();
  WakeEngine();
  return all && next_us >= sleep_until_us_;
}

// Returns false if the I/O thread must continue, or must find out what failed.
bool SocketTransport::WriteHere(StreamConnection& connection, int64_t now_us) {
  if (!connection.AnswersAtOnce() || !connection.OnTimer(now_us).ok()) return false;
  const TransferNode& node = rounds_.node();
  if (node.sender().HasBlocksFor(connection.peer()) &&
      node.layout().bytes_per_block() > kBytesHere) {
    return false;  // its checksums would take too long on this thread
  }
  return connection.Pump(now_us, kBytesHere).ok() && !connection.WantsToWrite();
}

// Polls without sleeping until look_until_us_, then sleeps.
void SocketTransport::Wait() {
  const auto poll = [&](int timeout_ms) {
    const int count = epoll_wait(parts_.epoll.get(), events_.data(),
                                 static_cast<int>(events_.size()), timeout_ms);
    ready_ = std::span(events_).first(static_cast<size_t>(std::max(count, 0)));
  };
  int64_t now_us = clock_.NowUs();
  for (; now_us < look_until_us_; now_us = clock_.NowUs()) {
    poll(0);
    if (!ready_.empty() || posted_.exchange(false) || stop_) return;
    sched_yield();
  }
  sleeping_ = true;
  const bool seen = posted_.exchange(false);  // posted before `sleeping_` was set
  const int64_t wait_us = std::max<int64_t>(0, sleep_until_us_ - now_us);
  poll(seen ? 0 : static_cast<int>((wait_us + 999) / 1000));
  sleeping_ = false;
  posted_ = false;
}

void SocketTransport::OnSocketEvent(const epoll_event& event, int64_t now_us) {
  if (event.data.u64 == kWakeKey) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(parts_.wake.get(), &count, sizeof(count));
    return;
  }
  if (event.data.u64 < ConnectionRounds::kFirstPeer) return AcceptSome(event.data.u64, now_us);
  const bool failed = (event.events & (EPOLLERR | EPOLLHUP)) != 0;
  rounds_.OnReady(PeerId(event.data.u64), failed || (event.events & EPOLLIN) != 0,
                  failed || (event.events & EPOLLOUT) != 0, now_us);
}

void SocketTransport::DeliverPayloadReports(int64_t now_us) {
  if (parts_.nccl == nullptr) return;
  for (const NcclReport& report : parts_.nccl->TakeReports()) {
    const auto it = nccl_connections_.find(report.comm.peer);
    if (it == nccl_connections_.end()) continue;  // closed meanwhile
    if (const absl::Status status = it->second->OnReport(report, now_us); !status.ok()) {
      rounds_.Close(report.comm.peer, status, now_us);
    }
  }
}

std::unique_ptr<StreamConnection> SocketTransport::MakeConnection(bool shm, ConnectionParts parts) {
  if (shm && parts_.slots) {
    return std::make_unique<StagedShmConnection>(std::move(parts), *parts_.slots);
  }
  if (shm) return std::make_unique<HostShmConnection>(std::move(parts), *parts_.lent);
  if (parts_.tls != nullptr) {
    const int socket = parts.socket.get();
    parts.tls = parts.address.empty() ? parts_.tls->Accept(socket) : parts_.tls->Connect(socket);
  }
  if (parts_.nccl == nullptr) return std::make_unique<TcpConnection>(std::move(parts));
  auto connection = std::make_unique<NcclConnection>(std::move(parts), *parts_.nccl);
  nccl_connections_[connection->peer()] = connection.get();
  return connection;
}

void SocketTransport::AcceptSome(uint64_t key, int64_t now_us) {
  const bool shm = key == kShmListenKey;
  for (int32_t turn = 0; turn < kAcceptsAtOnce; ++turn) {
    absl::StatusOr<std::optional<FileDescriptor>> socket =
        shm ? AcceptUnix(parts_.shm_listener) : AcceptTcp(parts_.tcp_listener);
    if (!socket.ok()) {
      WatchListeners(false);
      accept_again_us_ = now_us + kAcceptPauseUs;
      return;
    }
    if (!socket->has_value()) return;
    if (shm && !CheckSameUser(**socket).ok()) continue;
    rounds_.Accept(
        [&](ConnectionParts parts) {
          parts.socket = **std::move(socket);
          return MakeConnection(shm, std::move(parts));
        },
        now_us);
  }
}

absl::StatusOr<std::vector<std::string>> SocketTransport::WaysTo(const std::string& address) const {
  return UsableAddresses(address, parts_.tcp_listener.get() >= 0, TakesShm());
}

absl::StatusOr<std::unique_ptr<StreamConnection>> SocketTransport::Connect(const std::string& way,
                                                                           ConnectionParts parts) {
  ASSIGN_OR_RETURN(parts.socket, StartConnect(way));
  return MakeConnection(IsShmAddress(way), std::move(parts));
}

void SocketTransport::Watch(StreamConnection& connection) {
  const uint32_t events =
      (connection.WantsToRead() ? EPOLLIN : 0u) | (connection.WantsToWrite() ? EPOLLOUT : 0u);
  const std::optional<uint32_t> wanted = events == 0 ? std::nullopt : std::optional(events);
  if (wanted == connection.watched_events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection.peer().value();
  // A connection that only waits for the pool is removed from epoll. Otherwise EPOLLHUP would wake
  // the thread in a loop.
  const int operation = !wanted                     ? EPOLL_CTL_DEL
                        : connection.watched_events ? EPOLL_CTL_MOD
                                                    : EPOLL_CTL_ADD;
  CHECK_EQ(epoll_ctl(parts_.epoll.get(), operation, connection.fd(), &event), 0);
  connection.watched_events = wanted;
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

// With connections, sleeps for one ping interval at most. Timers that RoundHere starts are not due
// earlier.
int64_t SocketTransport::NextWakeUs(int64_t now_us) const {
  const int64_t longest_us =
      rounds_.empty() ? kLongestWaitUs : std::min(kLongestWaitUs, tcp_.ping_interval_ms * 1000);
  const int64_t next = std::min(rounds_.NextRoundUs(now_us), now_us + longest_us);
  return accept_again_us_ == 0 ? next : std::min(next, accept_again_us_);
}

}  // namespace baton
