#include "kvtransfer/sockets/connection_rounds.h"

#include <algorithm>
#include <utility>

namespace baton {

ConnectionRounds::ConnectionRounds(const TransportOptions& options, const TcpOptions& tcp,
                                   Host& host, const Clock* clock)
    : tcp_(tcp),
      host_(host),
      clock_(clock),
      node_(*options.pool, options.fingerprint, options.epoch) {
  node_.ApplyPostedBeforeAnnouncements([this](int64_t now_us) { ApplyPosted(now_us); });
}

void ConnectionRounds::Round(int64_t now_us) {
  expects_answer_ = false;
  ApplyPosted(now_us);
  host_.DeliverReadiness(now_us);
  ReadOn(now_us);
  QueueEvents();
  host_.DeliverPayloadReports(now_us);
  RunTimers(now_us);
  OpenLinks(now_us);
  SendFrames(now_us);
  PumpAll(/*opened_by_us=*/false, now_us);
  host_.WakeEngine();
  PumpAll(/*opened_by_us=*/true, now_us);
  QueueEvents();
  host_.WakeEngine();
  pool_wait_ = LongestPoolWait();
}

void ConnectionRounds::ApplyPosted(int64_t now_us) {
  host_.TakePosted(applied_);
  for (TransferCommand& command : applied_) node_.Apply(std::move(command), now_us);
  applied_.clear();
}

ConnectionParts ConnectionRounds::NewParts(std::string address, int64_t now_us) {
  return {.node = node_,
          .options = tcp_,
          .peer = PeerId(next_peer_++),
          .socket = FileDescriptor(),
          .address = std::move(address),
          .now_us = now_us,
          .clock = clock_};
}

void ConnectionRounds::Accept(Make make, int64_t now_us) {
  CloseOpening(now_us);
  if (accepted_ >= tcp_.max_connections && !CloseStranger(now_us)) return;
  std::unique_ptr<StreamConnection> connection = make(NewParts("", now_us));
  const PeerId peer = connection->peer();
  ++accepted_;
  host_.Watch(*links_.emplace(peer, Link{std::move(connection), {}}).first->second.connection);
}

// Makes room for a connection whose handshake is not complete.
void ConnectionRounds::CloseOpening(int64_t now_us) {
  if (accepted_ < tcp_.max_opening) return;
  int32_t opening = 0;
  const StreamConnection* oldest = nullptr;
  for (const auto& [peer, link] : links_) {  // the oldest first
    if (link.connection->opened_by_us() || link.connection->open()) continue;
    if (oldest == nullptr) oldest = link.connection.get();
    ++opening;
  }
  if (opening < tcp_.max_opening) return;
  Close(oldest->peer(),
        absl::ResourceExhaustedError("closed to make room: the handshake was not complete"),
        now_us);
}

bool ConnectionRounds::CloseStranger(int64_t now_us) {
  for (const auto& [peer, link] : links_) {  // the oldest first
    if (link.connection->opened_by_us() || link.connection->known()) continue;
    Close(peer, absl::ResourceExhaustedError("closed to make room: no expected transfer was named"),
          now_us);
    return true;
  }
  return false;
}

StreamConnection* ConnectionRounds::Find(PeerId peer) const {
  const auto it = links_.find(peer);
  return it == links_.end() ? nullptr : it->second.connection.get();
}

void ConnectionRounds::OnReady(PeerId peer, bool readable, bool writable, int64_t now_us) {
  StreamConnection* const connection = Find(peer);
  if (connection == nullptr) return;  // closed earlier in this round
  absl::Status status;
  if (writable) status = connection->OnWritable(now_us);
  if (status.ok() && readable) status = connection->OnReadable(now_us);
  if (!status.ok()) return Close(peer, status, now_us);
  // A sender without transfers expects no answer.
  const bool waits = !connection->opened_by_us() || node_.sender().HasTransfersWith(peer);
  if (connection->AnswersAtOnce() && waits) expects_answer_ = true;
}

template <typename Work>
void ConnectionRounds::ForEach(int64_t now_us, Work work) {
  for (auto it = links_.begin(); it != links_.end();) {
    StreamConnection& connection = *(it++)->second.connection;  // Close erases it
    if (const absl::Status status = work(connection); !status.ok()) {
      Close(connection.peer(), status, now_us);
    }
  }
}

// Continues connections with unread input: after a long turn, or because they waited for the pool.
void ConnectionRounds::ReadOn(int64_t now_us) {
  ForEach(now_us, [now_us](StreamConnection& connection) {
    const bool waits = connection.HasUnread() || !connection.WantsToRead();
    return waits ? connection.OnReadable(now_us) : absl::OkStatus();
  });
}

void ConnectionRounds::QueueEvents() {
  if (!node_.has_events()) return;
  for (const auto& [peer, link] : links_) link.connection->ReleaseEndedTransfers();
  host_.QueueEvents(node_.TakeEvents());
}

void ConnectionRounds::RunTimers(int64_t now_us) {
  node_.OnTimer(now_us);
  ForEach(now_us, [now_us](StreamConnection& connection) { return connection.OnTimer(now_us); });
}

void ConnectionRounds::OpenLinks(int64_t now_us) {
  for (const std::string& address : node_.sender().TakeConnects()) {
    const absl::StatusOr<std::vector<std::string>> ways = host_.WaysTo(address);
    if (ways.ok()) {
      OpenLink(address, *ways, now_us);
    } else {
      // Valid when posted, but the network interface that it names may have disappeared since.
      node_.sender().OnLinkDown(address, ways.status());
    }
  }
}

// Opens a link over the first of `ways` that starts to connect. Keeps the other ways until the link
// is open. If none connects, reports that to the sender.
void ConnectionRounds::OpenLink(const std::string& address, std::span<const std::string> ways,
                                int64_t now_us) {
  absl::Status why;
  for (; !ways.empty(); ways = ways.subspan(1)) {
    absl::StatusOr<std::unique_ptr<StreamConnection>> started =
        host_.Connect(ways.front(), NewParts(address, now_us));
    if (!started.ok()) {
      why = started.status();
      continue;
    }
    StreamConnection& connection = **started;
    links_.emplace(connection.peer(), Link{*std::move(started), {ways.begin() + 1, ways.end()}});
    host_.Watch(connection);
    return;
  }
  node_.sender().OnLinkDown(address, why);
}

std::vector<PeerId> ConnectionRounds::SendFrames(int64_t now_us) {
  std::vector<PeerId> peers;
  for (const auto& [peer, frame] : node_.TakeFrames(now_us)) {
    StreamConnection* const connection = Find(peer);
    if (connection == nullptr) continue;  // connection lost; its transfers have failed
    if (const absl::Status status = connection->Send(frame); !status.ok()) {
      Close(peer, status, now_us);
    }
    if (peers.empty() || peers.back() != peer) peers.push_back(peer);
  }
  return peers;
}

// Pumps the connections that this side opened, or those that it accepted.
void ConnectionRounds::PumpAll(bool opened_by_us, int64_t now_us) {
  ForEach(now_us, [&](StreamConnection& connection) {
    if (connection.opened_by_us() != opened_by_us) return absl::OkStatus();
    if (connection.WantsToWrite() || connection.waits_for_pool() != PoolWait::kNothing) {
      expects_answer_ |= connection.AnswersAtOnce();
      if (const absl::Status status = connection.Pump(now_us); !status.ok()) return status;
    }
    host_.Watch(connection);
    return absl::OkStatus();
  });
}

void ConnectionRounds::Close(PeerId peer, const absl::Status& why, int64_t now_us) {
  const auto it = links_.find(peer);
  const Link closed = std::move(it->second);
  links_.erase(it);
  host_.OnClosed(peer);
  if (!closed.connection->opened_by_us()) --accepted_;
  if (!closed.connection->open() && !closed.other_ways.empty()) {
    OpenLink(closed.connection->address(), closed.other_ways, now_us);
  } else {
    closed.connection->Lost(why);
  }
}

PoolWait ConnectionRounds::LongestPoolWait() const {
  PoolWait waits = node_.has_events() ? PoolWait::kCopy : PoolWait::kNothing;
  for (const auto& [peer, link] : links_) {
    waits = std::max(waits, link.connection->waits_for_pool());
  }
  return waits;
}

int64_t ConnectionRounds::NextRoundUs(int64_t now_us) const {
  // Queueing a block that the pool cannot read fails its transfer, which may leave new frames to
  // send.
  if (pool_wait_ == PoolWait::kCopy || node_.sender().has_frames()) return now_us;
  int64_t next = node_.NextDeadlineUs();
  if (pool_wait_ == PoolWait::kBuffer) next = std::min(next, now_us + kBufferRetryUs);
  for (const auto& [peer, link] : links_) {
    const StreamConnection& connection = *link.connection;
    next = std::min(next, connection.HasUnread() ? now_us : connection.NextTimerUs());
  }
  return next;
}

}  // namespace baton
