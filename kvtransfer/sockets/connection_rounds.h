// Connections of a transport over streams, and the rounds of work over them. It joins a
// TransferNode and its connections with a host, which owns the streams and the time and knows the
// engine. SocketTransport is the host with real sockets; the simulation is a host with simulated
// streams.
//
// A round:
//
//   commands of the engine ─▶ ready streams ─▶ unread input ─▶ events for the engine
//     ─▶ reports of the payload medium ─▶ timers ─▶ new links ─▶ frames
//     ─▶ write on accepted connections ─▶ wake the engine
//     ─▶ write on opened connections ─▶ events for the engine ─▶ wake the engine
//
// Invariants:
//  1. Before the host gets a terminal event, every connection has released the leases of ended
//     transfers (rule 2 of transport.h).
//  2. Events of landed blocks are queued before any answer is written. So an engine that polls sees
//     them as early as possible.
//  3. Answers are written before the engine is woken. They are small, and the sender waits for
//     Done. A woken engine would start a step, perhaps on this CPU.
//  4. If a connection fails before it is open, the next way to the same receiver is tried. Any
//     other failed connection is reported to the node, once.
//  5. At most `max_connections` accepted connections exist. A new one replaces the oldest one that
//     has never named an expected transfer. At most `max_opening` have not completed their
//     handshake. A new one replaces the oldest one.
//
// A sender opens one connection for each receiver's address; a receiver accepts connections.
//
// Thread safety: none. The host calls one function at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "kvtransfer/pool/lease_request.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/sockets/stream_connection.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "kvtransfer/transport.h"

namespace baton {

class ConnectionRounds {
 public:
  class Host {
   public:
    virtual ~Host() = default;

    // ---- streams ----
    // Returns the ways to a receiver, best first. InvalidArgument if this host cannot reach it.
    virtual absl::StatusOr<std::vector<std::string>> WaysTo(const std::string& address) const = 0;
    // Begins to connect by `way`, and returns the connection made of `parts` and the new stream.
    virtual absl::StatusOr<std::unique_ptr<StreamConnection>> Connect(const std::string& way,
                                                                      ConnectionParts parts) = 0;
    // From now on, reports readiness of the connection's stream as long as the stream is ready, in
    // the directions that the connection wants. Called for every connection in every round.
    virtual void Watch(StreamConnection& connection) = 0;
    // The connection is closed and is destroyed next.
    virtual void OnClosed(PeerId) {}
    // Calls Accept for every accepted stream, and OnReady for every ready one.
    virtual void DeliverReadiness(int64_t now_us) = 0;
    // Delivers what a payload medium beside the streams reports. Calls Close for connections that
    // fail.
    virtual void DeliverPayloadReports(int64_t) {}

    // ---- the engine ----
    // Moves the commands posted since the last call into `commands`, which is empty.
    virtual void TakePosted(std::vector<TransferCommand>& commands) = 0;
    // Hands events to the engine, which sees them when it polls.
    virtual void QueueEvents(std::vector<TransferEvent> events) = 0;
    // Wakes the engine if events were queued since the last call.
    virtual void WakeEngine() = 0;
  };

  // Identifies the first connection. Smaller numbers are free for the host's own use.
  static constexpr uint64_t kFirstPeer = 16;

  // `tcp`, `host` and `clock` outlive this. `clock`: see ConnectionParts.
  ConnectionRounds(const TransportOptions& options, const TcpOptions& tcp, Host& host,
                   const Clock* clock);

  void Round(int64_t now_us);

  // ---- called by the host within a round ----
  // Adds the connection that `make` returns, and watches it. Does not call `make` if there are too
  // many connections; the host then closes the accepted stream.
  using Make = absl::FunctionRef<std::unique_ptr<StreamConnection>(ConnectionParts)>;
  void Accept(Make make, int64_t now_us);
  // Ignores a stream that is already closed.
  void OnReady(PeerId peer, bool readable, bool writable, int64_t now_us);
  // Closes the connection. REQUIRES: Find returns it.
  void Close(PeerId peer, const absl::Status& why, int64_t now_us);

  // ---- parts of a round, for a host that executes posts on the engine's thread ----
  void ApplyPosted(int64_t now_us);
  // Gives pending frames to their connections. Returns the peers of the frames.
  std::vector<PeerId> SendFrames(int64_t now_us);
  void QueueEvents();
  // Returns the connection, or null if it is closed.
  StreamConnection* Find(PeerId peer) const;

  // ---- between rounds ----
  // Returns the latest time of the next round; INT64_MAX if none is needed. Returns `now_us` if
  // input is unread, frames are pending, or a copy of the pool is awaited. The host may limit this.
  int64_t NextRoundUs(int64_t now_us) const;
  // Returns what the last round left waiting for the pool.
  PoolWait pool_wait() const { return pool_wait_; }
  // True if the last round moved data to or from a peer whose next message is expected at once
  // (StreamConnection::AnswersAtOnce).
  bool expects_answer() const { return expects_answer_; }
  bool empty() const { return links_.empty(); }
  // Destroys all connections without a report to the node.
  void Clear() { links_.clear(); }

  TransferNode& node() { return node_; }
  const TransferNode& node() const { return node_; }

 private:
  struct Link {
    std::unique_ptr<StreamConnection> connection;
    std::vector<std::string> other_ways;  // to try if the connection does not open
  };

  ConnectionParts NewParts(std::string address, int64_t now_us);
  // Closes the oldest accepted connection without a complete handshake, if there are too many.
  void CloseOpening(int64_t now_us);
  // Closes the oldest accepted connection that never named an expected transfer. Returns false if
  // there is none.
  bool CloseStranger(int64_t now_us);
  void ReadOn(int64_t now_us);
  void RunTimers(int64_t now_us);
  void OpenLinks(int64_t now_us);
  void OpenLink(const std::string& address, std::span<const std::string> ways, int64_t now_us);
  void PumpAll(bool opened_by_us, int64_t now_us);
  // Calls `work(StreamConnection&)` for each connection, and closes those for which it fails.
  template <typename Work>
  void ForEach(int64_t now_us, Work work);
  PoolWait LongestPoolWait() const;

  const TcpOptions& tcp_;
  Host& host_;
  const Clock* const clock_;
  TransferNode node_;
  std::map<PeerId, Link> links_;
  std::vector<TransferCommand> applied_;  // empty between calls; keeps its capacity
  int32_t accepted_ = 0;                  // accepted ones of links_
  uint64_t next_peer_ = kFirstPeer;
  PoolWait pool_wait_ = PoolWait::kNothing;
  bool expects_answer_ = false;
};

}  // namespace baton
