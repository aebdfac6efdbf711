// A host of ConnectionRounds whose streams are in memory. The test runs its rounds and reads a log
// of their parts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "kvtransfer/pool/host_pool.h"
#include "kvtransfer/sockets/connection_rounds.h"
#include "kvtransfer/sockets/tcp_connection.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {

// One direction of a stream.
struct Pipe {
  std::string bytes;
  bool closed = false;
};

struct PipeStream {
  std::shared_ptr<Pipe> in = std::make_shared<Pipe>();
  std::shared_ptr<Pipe> out = std::make_shared<Pipe>();
  absl::Status connected;

  PipeStream Reversed() const { return {.in = out, .out = in, .connected = absl::OkStatus()}; }
};

// What a test makes a connection claim.
struct ConnectionClaims {
  bool has_unread = false;
  bool reading_paused = false;
  bool answers_at_once = false;
  PoolWait pool_wait = PoolWait::kNothing;
};

// Connection over a stream in memory. Appends to the log: r for OnReadable, q for the blocks of a
// pump, a or o for a write on an accepted or opened connection, R for the release of ended
// transfers.
class PipeConnection final : public TcpConnection {
 public:
  PipeConnection(ConnectionParts parts, PipeStream stream, const ConnectionClaims& claims,
                 std::string& log)
      : TcpConnection(std::move(parts)),
        stream_(std::move(stream)),
        claims_(claims),
        log_(log),
        unconnected_(opened_by_us()) {}
  ~PipeConnection() override { stream_.out->closed = true; }

  bool readable() const { return !stream_.in->bytes.empty() || stream_.in->closed; }
  // True once: when connecting has ended.
  bool TakeWritable() { return std::exchange(unconnected_, false); }

  void ReleaseEndedTransfers() override {
    log_ += 'R';
    TcpConnection::ReleaseEndedTransfers();
  }
  bool HasUnread() const override { return claims_.has_unread; }
  bool AnswersAtOnce() const override { return claims_.answers_at_once; }
  PoolWait waits_for_pool() const override { return claims_.pool_wait; }

 protected:
  absl::Status ConnectOutcome() const override { return stream_.connected; }
  bool ReadingPaused() const override { return claims_.reading_paused; }
  absl::Status ResumeReading(int64_t now_us) override {
    log_ += 'r';
    return TcpConnection::ResumeReading(now_us);
  }
  absl::Status QueueBlocks(int64_t now_us) override {
    log_ += 'q';
    return TcpConnection::QueueBlocks(now_us);
  }
  ssize_t ReadSome(std::span<iovec> buffers) override {
    std::string& bytes = stream_.in->bytes;
    if (bytes.empty()) {
      errno = EAGAIN;
      return stream_.in->closed ? 0 : -1;
    }
    const size_t count = std::min(buffers[0].iov_len, bytes.size());
    std::memcpy(buffers[0].iov_base, bytes.data(), count);
    bytes.erase(0, count);
    return static_cast<ssize_t>(count);
  }
  ssize_t WriteSome(std::span<iovec> buffers) override {
    log_ += opened_by_us() ? 'o' : 'a';
    size_t count = 0;
    for (const iovec& buffer : buffers) {
      stream_.out->bytes.append(static_cast<const char*>(buffer.iov_base), buffer.iov_len);
      count += buffer.iov_len;
    }
    return static_cast<ssize_t>(count);
  }

 private:
  const PipeStream stream_;
  const ConnectionClaims& claims_;
  std::string& log_;
  bool unconnected_;
};

// Worker whose rounds the test runs. Its ways are names of other workers, or of failures:
// "refused" does not begin to connect, "dead" does not connect.
//
// Appends to the log of a round: p for TakePosted, d for the end of DeliverReadiness, n for
// DeliverPayloadReports, E for QueueEvents, w for WakeEngine.
class PipedWorker final : private ConnectionRounds::Host {
 public:
  using Network = std::map<std::string, PipedWorker*>;

  PipedWorker(Network& network, const std::string& name, uint64_t epoch, const TcpOptions& tcp = {})
      : network_(network),
        tcp_(tcp),
        rounds_({.fingerprint = MakeFingerprint({}),
                 .epoch = Epoch(epoch),
                 .pool = &lender_,
                 .waker = nullptr},
                tcp_, *this, /*clock=*/nullptr) {
    network_[name] = this;
  }

  void Post(TransferCommand command) { posted_.push_back(std::move(command)); }
  // Posts after the round has begun, before its streams are read.
  void PostDuringNextRound(TransferCommand command) { late_.push_back(std::move(command)); }
  void Round(int64_t now_us) {
    log_.clear();
    rounds_.Round(now_us);
    logs_.push_back(log_);
  }
  // Accepts the other end of the returned stream in the next round.
  PipeStream Arrive() {
    PipeStream stream;
    arrived_.push_back(stream.Reversed());
    return stream;
  }

  ConnectionRounds& rounds() { return rounds_; }
  ConnectionClaims& claims() { return claims_; }
  const std::vector<std::string>& logs() const { return logs_; }
  const std::vector<std::string>& ways() const { return ways_; }  // in the order of attempts
  const std::vector<uint64_t>& closed() const { return closed_; }
  size_t connections() const { return connections_.size(); }
  // Returns the terminal events.
  std::vector<TransferEvent::Kind> ends() const {
    std::vector<TransferEvent::Kind> ends;
    for (const TransferEvent& event : events_) {
      if (event.kind != TransferEvent::Kind::kReceiving) ends.push_back(event.kind);
    }
    return ends;
  }
  const TransferEvent& last_event() const { return events_.back(); }

 private:
  absl::StatusOr<std::vector<std::string>> WaysTo(const std::string& address) const override {
    if (address == "unknown") return absl::InvalidArgumentError("no way");
    return std::vector<std::string>(absl::StrSplit(address, ','));
  }
  absl::StatusOr<std::unique_ptr<StreamConnection>> Connect(const std::string& way,
                                                            ConnectionParts parts) override {
    ways_.push_back(way);
    if (way == "refused") return absl::UnavailableError("it is refused");
    if (way == "dead") {
      return Make(std::move(parts), {.connected = absl::UnavailableError("it is dead")});
    }
    return Make(std::move(parts), network_.at(way)->Arrive());
  }
  void Watch(StreamConnection& connection) override { watched_.insert(connection.peer()); }
  void OnClosed(PeerId peer) override {
    closed_.push_back(peer.value());
    connections_.erase(peer);
  }
  void DeliverReadiness(int64_t now_us) override {
    for (TransferCommand& command : std::exchange(late_, {})) Post(std::move(command));
    for (PipeStream& stream : std::exchange(arrived_, {})) {
      rounds_.Accept(
          [&](ConnectionParts parts) { return Make(std::move(parts), std::move(stream)); }, now_us);
    }
    const std::map<PeerId, PipeConnection*> connections = connections_;
    const std::set<PeerId> watched = std::exchange(watched_, {});
    for (const auto& [peer, connection] : connections) {
      if (!watched.contains(peer)) continue;
      const bool writable = connection->TakeWritable();
      const bool readable = connection->readable() && connection->WantsToRead();
      if (readable || writable) rounds_.OnReady(peer, readable, writable, now_us);
    }
    log_ += 'd';
  }
  void DeliverPayloadReports(int64_t) override { log_ += 'n'; }
  void TakePosted(std::vector<TransferCommand>& commands) override {
    log_ += 'p';
    commands.swap(posted_);
  }
  void QueueEvents(std::vector<TransferEvent> events) override {
    log_ += 'E';
    events_.insert(events_.end(), events.begin(), events.end());
  }
  void WakeEngine() override { log_ += 'w'; }

  std::unique_ptr<StreamConnection> Make(ConnectionParts parts, PipeStream stream) {
    auto connection =
        std::make_unique<PipeConnection>(std::move(parts), std::move(stream), claims_, log_);
    connections_[connection->peer()] = connection.get();
    return connection;
  }

  Network& network_;
  const TcpOptions tcp_;
  const KvPoolLayout layout_ = MakeLayout({});
  std::vector<std::byte> pool_ = std::vector<std::byte>(layout_.pool_bytes());
  HostPool lender_{pool_.data(), layout_};
  std::string log_;
  ConnectionClaims claims_;
  std::map<PeerId, PipeConnection*> connections_;
  std::set<PeerId> watched_;  // since the last DeliverReadiness
  std::vector<TransferCommand> posted_;
  std::vector<TransferCommand> late_;  // of PostDuringNextRound
  std::vector<PipeStream> arrived_;
  std::vector<std::string> logs_;
  std::vector<std::string> ways_;
  std::vector<uint64_t> closed_;
  std::vector<TransferEvent> events_;
  ConnectionRounds rounds_;
};

}  // namespace baton
