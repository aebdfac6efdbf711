#include "tests/sim/connection_set.h"

#include <algorithm>
#include <utility>

namespace baton {

ConnectionParts ConnectionSet::Parts(PeerId peer, std::string address, int64_t now_us) const {
  return {.node = node_,
          .options = options_,
          .peer = peer,
          .socket = FileDescriptor(),
          .address = std::move(address),
          .now_us = now_us};
}

void ConnectionSet::Accept(std::unique_ptr<ByteStream> stream, int64_t now_us) {
  if (accepted_ >= options_.max_connections) return;
  const PeerId peer(next_peer_++);
  const auto [it, inserted] = connections_.emplace(
      peer,
      std::make_unique<StreamedConnection>(Parts(peer, "", now_us), std::move(stream), mutant_));
  ++accepted_;
  Watch(*it->second);
}

void ConnectionSet::OnReady(PeerId peer, bool readable, bool writable, int64_t now_us) {
  const auto it = connections_.find(peer);
  if (it == connections_.end()) return;  // closed earlier in this round
  StreamedConnection& connection = *it->second;
  absl::Status status;
  if (writable) status = connection.OnWritable(now_us);
  if (status.ok() && readable) status = connection.OnReadable(now_us);
  if (!status.ok()) Close(peer, status);
}

std::vector<TransferEvent> ConnectionSet::EndRound(int64_t now_us) {
  ReadOn(now_us);
  RunTimers(now_us);
  OpenLinks(now_us);
  SendFrames(now_us);
  PumpAll(now_us);
  for (const auto& [peer, connection] : connections_) connection->ReleaseEndedTransfers();
  return node_.TakeEvents();
}

// Continues to read from connections that waited for the pool.
void ConnectionSet::ReadOn(int64_t now_us) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    StreamedConnection& connection = *(it++)->second;  // Close erases it
    if (connection.WantsToRead()) continue;
    if (const absl::Status status = connection.OnReadable(now_us); !status.ok()) {
      Close(connection.peer(), status);
    }
  }
}

void ConnectionSet::OpenLinks(int64_t now_us) {
  for (std::string& address : node_.sender().TakeConnects()) {
    const PeerId peer(next_peer_++);
    absl::StatusOr<std::unique_ptr<ByteStream>> stream = host_.Connect(address, peer);
    if (!stream.ok()) {
      node_.sender().OnLinkDown(address, stream.status());
      continue;
    }
    const auto [it, inserted] = connections_.emplace(
        peer, std::make_unique<StreamedConnection>(Parts(peer, std::move(address), now_us),
                                                   *std::move(stream), mutant_));
    Watch(*it->second);
  }
}

void ConnectionSet::RunTimers(int64_t now_us) {
  node_.OnTimer(now_us);
  for (auto it = connections_.begin(); it != connections_.end();) {
    StreamedConnection& connection = *(it++)->second;  // Close erases it
    if (const absl::Status status = connection.OnTimer(now_us); !status.ok()) {
      Close(connection.peer(), status);
    }
  }
}

void ConnectionSet::SendFrames(int64_t now_us) {
  for (const auto& [peer, frame] : node_.TakeFrames(now_us)) {
    const auto it = connections_.find(peer);
    if (it == connections_.end()) continue;  // closed since then; its transfers have failed
    if (const absl::Status status = it->second->Send(frame); !status.ok()) Close(peer, status);
  }
}

void ConnectionSet::PumpAll(int64_t now_us) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    StreamedConnection& connection = *(it++)->second;  // Close erases it
    absl::Status status;
    const bool waits = connection.waits_for_pool() != PoolWait::kNothing;
    if (connection.WantsToWrite() || waits) status = connection.Pump(now_us);
    if (status.ok()) {
      Watch(connection);
    } else {
      Close(connection.peer(), status);
    }
  }
}

void ConnectionSet::Close(PeerId peer, const absl::Status& why) {
  const auto it = connections_.find(peer);
  const std::unique_ptr<StreamedConnection> connection = std::move(it->second);
  connections_.erase(it);
  if (!connection->opened_by_us()) --accepted_;
  connection->Lost(why);
}

void ConnectionSet::Watch(const StreamedConnection& connection) {
  host_.Watch(connection.peer(), connection.stream(), connection.WantsToWrite());
}

int64_t ConnectionSet::NextTimerUs(int64_t now_us) const {
  if (node_.has_events() || node_.sender().has_frames()) return now_us;
  int64_t next = node_.NextDeadlineUs();
  for (const auto& [peer, connection] : connections_) {
    if (connection->waits_for_pool() != PoolWait::kNothing) return now_us;
    next = std::min(next, connection->NextTimerUs());
  }
  return next;
}

}  // namespace baton
