#include "kvtransfer/sockets/socket_transport.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kvtransfer/shm/shm_connection.h"
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
      node_(*options.pool, options.fingerprint, options.epoch) {
  node_.ApplyPostedBeforeAnnouncements([this](int64_t now_us) { ApplyPosted(now_us); });
  if (parts_.nccl) parts_.nccl->Start([this] { Wake(); });
  thread_ = std::thread([this] { Run(); });
}

SocketTransport::~SocketTransport() {
  stop_ = true;
  Wake();
  thread_.join();
  connections_.clear();  // its destructors abort the NCCL communicators
  if (parts_.nccl) parts_.nccl->Stop();
}

absl::Status SocketTransport::CheckAddress(const std::string& address) const {
  if (!address.empty() && address == good_address_) return absl::OkStatus();
  RETURN_IF_ERROR(UsableAddresses(address, parts_.tcp_listener.get() >= 0, TakesShm()).status());
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
  std::array<epoll_event, 64> ready;
  while (!stop_) {
    const int count = Wait(ready);
    const std::lock_guard lock(round_mutex_);
    Round(std::span(ready).first(static_cast<size_t>(std::max(count, 0))));
    if (pool_wait_ == PoolWait::kCopy && rounds_waiting_ > kRoundsBeforeYield) sched_yield();
  }
}

void SocketTransport::ApplyPosted(int64_t now_us) {
  TakeCommands(applied_);
  for (TransferCommand& command : applied_) node_.Apply(std::move(command), now_us);
  applied_.clear();
}

void SocketTransport::Round(std::span<const epoll_event> ready) {
  const int64_t now_us = clock_.NowUs();
  ApplyPosted(now_us);
  for (const epoll_event& event : ready) OnSocketEvent(event, now_us);
  ReadOn(now_us);
  QueueEvents();  // of landed blocks: an engine that polls sees them before answers are written
  DeliverNcclReports(now_us);
  RunTimers(now_us);
  OpenLinks(now_us);
  SendFrames(now_us);
  // Write answers before waking the engine. They are small, and the sender waits for Done. A woken
  // engine would start a step, perhaps on this CPU.
  PumpAll(/*opened_by_us=*/false, now_us);
  WakeEngine();
  PumpAll(/*opened_by_us=*/true, now_us);
  QueueEvents();
  WakeEngine();
  pool_wait_ = WaitsForPool();
  rounds_waiting_ = pool_wait_ == PoolWait::kCopy ? rounds_waiting_ + 1 : 0;
  sleep_until_us_ = NextWakeUs(now_us);
}

// Releases all blocks of ended transfers before the engine can see their terminal events.
void SocketTransport::QueueEvents() {
  if (!node_.has_events()) return;
  for (const auto& [peer, connection] : connections_) connection->ReleaseEndedTransfers();
  std::vector<TransferEvent> events = node_.TakeEvents();
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
  // With several transfers the I/O thread is running anyway, and writes for all of them at once.
  if (!lock.owns_lock() || node_.sender().transfers() > 1) return false;
  const int64_t now_us = clock_.NowUs();
  ApplyPosted(now_us);
  bool all = !node_.sender().wants_connects();
  int64_t next_us = node_.NextDeadlineUs();
  for (const PeerId peer : SendFrames(now_us)) {
    const auto it = connections_.find(peer);
    if (it == connections_.end()) continue;
    StreamConnection& connection = *it->second;
    all &= WriteHere(connection, now_us);
    next_us = std::min(next_us, connection.NextTimerUs());
  }
  QueueEvents();
  WakeEngine();
  return all && next_us >= sleep_until_us_;
}

// Returns false if the I/O thread must continue, or must find out what failed.
bool SocketTransport::WriteHere(StreamConnection& connection, int64_t now_us) {
  if (!connection.AnswersAtOnce() || !connection.OnTimer(now_us).ok()) return false;
  if (node_.sender().HasBlocksFor(connection.peer()) &&
      node_.layout().bytes_per_block() > kBytesHere) {
    return false;  // its checksums would take too long on this thread
  }
  return connection.Pump(now_us, kBytesHere).ok() && !connection.WantsToWrite();
}

// Polls without sleeping until look_until_us_, then sleeps.
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
  const bool seen = posted_.exchange(false);  // posted before `sleeping_` was set
  const int64_t wait_us = std::max<int64_t>(0, sleep_until_us_ - now_us);
  const int count = poll(seen ? 0 : static_cast<int>((wait_us + 999) / 1000));
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
  if (event.data.u64 < kFirstPeer) return AcceptSome(event.data.u64, now_us);
  const auto it = connections_.find(PeerId(event.data.u64));
  if (it == connections_.end()) return;  // closed earlier in this round
  StreamConnection& connection = *it->second;
  absl::Status status;
  if ((event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0)
    status = connection.OnWritable(now_us);
  if (status.ok() && (event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
    status = connection.OnReadable(now_us);
  }
  if (!status.ok()) return Close(connection.peer(), status);
  // A sender without transfers expects no answer.
  const bool waits =
      !connection.opened_by_us() || node_.sender().HasTransfersWith(connection.peer());
  if (connection.AnswersAtOnce() && waits) look_until_us_ = now_us + kLookAroundUs;
}

// Continues connections with unread input: after a long turn, or because they waited for the pool.
void SocketTransport::ReadOn(int64_t now_us) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    StreamConnection& connection = *(it++)->second;  // Close erases it
    if (!connection.HasUnread() && connection.WantsToRead()) continue;
    if (const absl::Status status = connection.OnReadable(now_us); !status.ok()) {
      Close(connection.peer(), status);
    }
  }
}

void SocketTransport::DeliverNcclReports(int64_t now_us) {
  if (parts_.nccl == nullptr) return;
  for (const NcclReport& report : parts_.nccl->TakeReports()) {
    const auto it = nccl_connections_.find(report.comm.peer);
    if (it == nccl_connections_.end()) continue;  // closed meanwhile
    if (const absl::Status status = it->second->OnReport(report, now_us); !status.ok()) {
      Close(report.comm.peer, status);
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
                        .now_us = now_us,
                        .clock = &clock_};
  std::unique_ptr<StreamConnection>& added = connections_[peer];
  if (shm) {
    added = std::make_unique<ShmConnection>(std::move(parts), *parts_.lent);
  } else if (parts_.nccl) {
    auto connection = std::make_unique<NcclConnection>(std::move(parts), *parts_.nccl);
    nccl_connections_[peer] = connection.get();
    added = std::move(connection);
  } else {
    added = std::make_unique<TcpConnection>(std::move(parts));
  }
  return *added;
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
    if (accepted_ >= tcp_.max_connections && !CloseStranger()) continue;  // closes the new one
    ++accepted_;
    Watch(Add(shm, **std::move(socket), "", now_us));
  }
}

bool SocketTransport::CloseStranger() {
  for (const auto& [peer, connection] : connections_) {  // the oldest first
    if (connection->opened_by_us() || connection->known()) continue;
    Close(peer,
          absl::ResourceExhaustedError("closed to make room: no expected transfer was named"));
    return true;
  }
  return false;
}

void SocketTransport::OpenLinks(int64_t now_us) {
  for (const std::string& address : node_.sender().TakeConnects()) {
    const absl::StatusOr<std::vector<std::string>> ways =
        UsableAddresses(address, parts_.tcp_listener.get() >= 0, TakesShm());
    if (ways.ok()) {
      OpenLink(address, *ways, now_us);
    } else {
      // Valid when posted, but the network interface that it names may have disappeared since.
      node_.sender().OnLinkDown(address, ways.status());
    }
  }
}

// Opens a link over the first of `ways` that starts to connect. Keeps the other ways until the link
// is open. Returns false if none connects, after a report to the sender.
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

std::vector<PeerId> SocketTransport::SendFrames(int64_t now_us) {
  std::vector<PeerId> peers;
  for (const auto& [peer, frame] : node_.TakeFrames(now_us)) {
    const auto it = connections_.find(peer);
    if (it == connections_.end()) continue;  // connection lost; its transfers have failed
    if (const absl::Status status = it->second->Send(frame); !status.ok()) Close(peer, status);
    if (peers.empty() || peers.back() != peer) peers.push_back(peer);
  }
  return peers;
}

void SocketTransport::PumpAll(bool opened_by_us, int64_t now_us) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    StreamConnection& connection = *(it++)->second;  // Close erases it
    if (connection.opened_by_us() != opened_by_us) continue;
    if (!connection.WantsToWrite() && connection.waits_for_pool() == PoolWait::kNothing) {
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
  // Closing the descriptor removes it from the epoll set.
  const std::unique_ptr<StreamConnection> connection = std::move(it->second);
  connections_.erase(it);
  nccl_connections_.erase(peer);
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

PoolWait SocketTransport::WaitsForPool() const {
  PoolWait waits = node_.has_events() ? PoolWait::kCopy : PoolWait::kNothing;
  for (const auto& [peer, connection] : connections_) {
    waits = std::max(waits, connection->waits_for_pool());
  }
  return waits;
}

// With connections, sleeps for one ping interval at most. Timers that RoundHere starts are not due
// earlier.
int64_t SocketTransport::NextWakeUs(int64_t now_us) const {
  const int64_t longest_us = connections_.empty()
                                 ? kLongestWaitUs
                                 : std::min(kLongestWaitUs, tcp_.ping_interval_ms * 1000);
  int64_t next = std::min(node_.NextDeadlineUs(), now_us + longest_us);
  if (accept_again_us_ != 0) next = std::min(next, accept_again_us_);
  // Queueing a block that the pool cannot read fails its transfer, which may leave new frames to
  // send.
  if (pool_wait_ == PoolWait::kCopy || node_.sender().has_frames()) return now_us;
  if (pool_wait_ == PoolWait::kBuffer) next = std::min(next, now_us + kBufferRetryUs);
  for (const auto& [peer, connection] : connections_) {
    next = std::min(next, connection->HasUnread() ? now_us : connection->NextTimerUs());
  }
  return next;
}

}  // namespace baton
