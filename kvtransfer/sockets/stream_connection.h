// Connection between a sender, which opened it, and a receiver, which accepted it: handshake,
// frames, heartbeats and deadlines. Derived classes move the blocks, either within the stream
// (tcp_connection.h) or beside it (shm_connection.h, nccl_connection.h).
//
// With TLS, the first bytes of the greeting wait for TLS's handshake, within the same deadline.
//
//   connecting ──▶ greeting (Hello, HelloReply) ──▶ open        if accepted
//                                               └─▶ refused ──▶ closed once the reply is written
//
// If a function returns an error Status, the owner must close this connection. The owner then
// reports that to the node (transfer_node.h) by Lost.
//
// A connection is closed in these cases:
//  - It does not connect or finish the handshake in time.
//  - A frame that has begun does not arrive in time.
//  - Transfers are open, and nothing was heard for `silence_timeout_ms`. Time in which this process
//    was paused does not count. Both sides send pings, so a live peer is never silent.
//  - It was accepted, has no transfers, and was silent for `idle_timeout_ms`.
//
// A connection may wait for the pool (transfer_pool.h): for bytes to send, for memory for a
// payload, or for a payload to be stored. Meanwhile it reads nothing more, or sends no further
// block, and the peer's deadlines are suspended. waits_for_pool() tells the owner, which calls
// OnReadable or Pump again.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/file_descriptor.h"
#include "kvtransfer/pool/lease_request.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/sockets/frame_stream.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "kvtransfer/transport.h"
#include "security/tls_session.h"

namespace baton {

// Constructor arguments of a connection.
struct ConnectionParts {
  TransferNode& node;
  const TcpOptions& options;
  PeerId peer;
  FileDescriptor socket;
  std::string address;  // of the receiver to connect to; empty if accepted
  int64_t now_us;
  // Measures time within a round while blocks move. Null: a round takes no time.
  const Clock* clock = nullptr;
  // Encrypts the stream. Null: it is not encrypted.
  std::unique_ptr<TlsSession> tls = nullptr;
};

class StreamConnection {
 public:
  explicit StreamConnection(ConnectionParts parts);
  virtual ~StreamConnection() = default;
  StreamConnection(const StreamConnection&) = delete;
  StreamConnection& operator=(const StreamConnection&) = delete;

  absl::Status OnReadable(int64_t now_us);
  // Also called when connecting has ended.
  absl::Status OnWritable(int64_t now_us);
  absl::Status OnTimer(int64_t now_us);
  virtual absl::Status Send(const Frame& frame);
  // Writes until the socket is full or `turn_bytes` have moved. That limit gives the other
  // connections their turn.
  absl::Status Pump(int64_t now_us, int64_t turn_bytes = kTurnBytes);
  // True if the owner should wait for the socket to become writable.
  bool WantsToWrite() const;
  // Latest time at which OnTimer must be called.
  int64_t NextTimerUs() const;

  // Releases the leases of transfers that have ended.
  virtual void ReleaseEndedTransfers() = 0;
  // True if input is buffered here, so the socket no longer reports it: call OnReadable again.
  virtual bool HasUnread() const {
    return tls_ != nullptr && tls_->HasUnread() && !ReadingPaused();
  }
  // Returns what this connection waits for.
  virtual PoolWait waits_for_pool() const { return PoolWait::kNothing; }
  // True if the owner should wait for the socket to become readable.
  bool WantsToRead() const { return !ReadingPaused(); }
  // True if the peer answers so fast that polling is better than sleeping.
  virtual bool AnswersAtOnce() const { return false; }
  // Fails the transfers of the closed connection.
  void Lost(const absl::Status& why);

  PeerId peer() const { return peer_; }
  bool opened_by_us() const { return !address_.empty(); }
  const std::string& address() const { return address_; }
  // True after a successful handshake.
  bool open() const { return state_ == State::kOpen; }
  // True if the accepted peer has named an expected transfer. Other peers are closed first when
  // connections run out.
  bool known() const { return known_; }
  int fd() const { return socket_.get(); }
  static constexpr int64_t kTurnBytes = 8 << 20;
  // Events for which the owner watches the socket; unset: not watched. Set by the owner.
  std::optional<uint32_t> watched_events;

 protected:
  // ---- differs between the media ----
  virtual PullMode pulls() const = 0;
  // Result of connecting, once the stream has become writable for the first time.
  virtual absl::Status ConnectOutcome() const;
  // As readv and sendmsg: return the bytes moved, or -1 and errno.
  virtual ssize_t ReadSome(std::span<iovec> buffers) = 0;
  virtual ssize_t WriteSome(std::span<iovec> buffers) = 0;
  // The receiver accepted this connection, which we opened.
  virtual absl::Status OnAccepted() { return absl::OkStatus(); }
  // We accepted the sender that sent this Hello.
  virtual absl::Status OnGreeted(const HelloFrame&) { return absl::OkStatus(); }
  // True if both ends are on one host and thus share a monotonic clock.
  virtual bool SharesClock() const { return false; }
  // Handles a frame from the sender that only one medium has. InvalidArgument for frames of other
  // media.
  virtual absl::Status OnPayloadFrame(Frame frame, int64_t now_us) = 0;
  // Same for a frame from the receiver.
  virtual absl::Status OnPayloadAnswer(Frame frame, int64_t now_us);
  // Timers of the medium, while the connection is open.
  virtual absl::Status OnPayloadTimer(int64_t) { return absl::OkStatus(); }
  virtual int64_t NextPayloadTimerUs() const;
  // All bytes of a payload in the stream have arrived.
  virtual void OnLanded(BlockLanding, int64_t) {}
  // While true, nothing is read, because earlier input waits for the pool.
  virtual bool ReadingPaused() const { return false; }
  // Continues what waits for the pool, as far as possible.
  virtual absl::Status ResumeReading(int64_t) { return absl::OkStatus(); }
  // Gives the writer the next blocks if it has room.
  virtual absl::Status QueueBlocks(int64_t now_us) = 0;
  // True if QueueBlocks has work to do.
  virtual bool HasBlocksToQueue() const { return node_.sender().HasBlocksFor(peer_); }

  // Directs the payload of the last frame to `landing` and starts its deadline.
  void StartPayload(BlockLanding landing, int64_t now_us);
  absl::Status Unexpected(const Frame& frame) const;
  // Layout and block size of the sender's pool. REQUIRES: accepted by us, and open.
  const KvGeometry& sender_geometry() const { return sender_geometry_; }
  // Charges `bytes` to this turn, and at least the cost of a system call and a frame. Without that
  // minimum, a turn could process 400,000 of the smallest frames and delay all other connections
  // for seconds.
  void Moved(int64_t bytes) { turn_bytes_ += std::max(bytes, kLeastCharge); }
  int64_t left_in_turn() const { return turn_limit_ - turn_bytes_; }
  // Decisions within a round use its start time `now_us`, so they all happen at the same instant.
  // Durations of transfers need the real time, which this returns.
  int64_t Now(int64_t now_us) const {
    return clock_ == nullptr ? now_us : std::max(now_us, clock_->NowUs());
  }

  TransferNode& node_;
  const PeerId peer_;
  FileDescriptor socket_;
  const std::unique_ptr<TlsSession> tls_;  // null: the stream is not encrypted
  FrameReader reader_;
  FrameWriter writer_;

 private:
  enum class State : uint8_t { kConnecting, kGreeting, kOpen, kRefused };
  static constexpr int64_t kLeastCharge = 4096;

  void StartFrameDeadline(int64_t now_us);
  // Handles a payload if all its bytes have arrived.
  void TakeLanded(int64_t now_us);
  absl::Status OnFrame(Frame frame, int64_t now_us);
  absl::Status OnGreeting(const Frame& frame, int64_t now_us);
  absl::Status WatchLife(int64_t now_us);
  void ForgiveOwnPause(int64_t now_us);
  bool HasTransfers() const;
  // True while TLS's handshake waits for the peer, so that nothing can be written.
  bool AwaitsHandshake() const;
  // Returns why the last read or write failed.
  absl::Status Broken() const;

  const TcpOptions& options_;
  const Clock* const clock_;
  const std::string address_;   // of the receiver; empty if accepted
  KvGeometry sender_geometry_;  // set when a sender's Hello is accepted
  SenderLink link_;             // set together with sender_geometry_
  State state_;
  int64_t state_deadline_us_;  // deadline of connecting and greeting
  int64_t turn_bytes_ = 0;     // bytes moved in this turn
  int64_t turn_limit_ = kTurnBytes;
  int64_t frame_deadline_us_ = 0;  // 0: between frames
  bool watching_life_ = false;
  int64_t last_heard_us_ = 0;
  int64_t next_ping_us_ = 0;
  bool known_ = false;
  bool pong_queued_ = false;  // at most one Pong is queued, however many pings arrive
};

}  // namespace baton
