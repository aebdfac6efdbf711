// One connection between a sender (who opened it) and a receiver (who accepted it): handshake,
// frames, signs of life, deadlines. How blocks travel is the derived classes': within the stream
// (tcp_connection.h) or beside it (shm_connection.h, nccl_connection.h).
//
//   connecting ──▶ greeting (Hello, HelloReply) ──▶ open        accepted and refused: refused ──▶
//   closed once the reply is out
//
// Every function that returns a Status means with an error: close this connection. The owner then
// tells the node (transfer_node.h) by Lost.
//
// A connection is cut when it does not connect or greet in time, when a frame once begun does not
// arrive in time, and, while transfers are open, when nothing at all was heard for
// `silence_timeout_ms` in which this side was awake; each side pings to be heard. An accepted one
// without transfers is cut after a silence of `idle_timeout_ms`.
//
// A connection may wait for the pool (transfer_pool.h): for bytes to send, for memory to land a
// payload in, or for a payload to be stored. Meanwhile it reads no further, or sends no further
// block; its time limits for the peer stand still. waits_for_pool() tells the owner, who calls
// OnReadable or Pump again.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
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

namespace baton {

// What a connection is made of.
struct ConnectionParts {
  TransferNode& node;
  const TcpOptions& options;
  PeerId peer;
  FileDescriptor socket;
  std::string address;  // of the receiver, to which it is being opened; empty: accepted
  int64_t now_us;
  // What a turn's time goes on by while it moves blocks; null: a turn takes none.
  const Clock* clock = nullptr;
};

class StreamConnection {
 public:
  explicit StreamConnection(ConnectionParts parts);
  virtual ~StreamConnection() = default;
  StreamConnection(const StreamConnection&) = delete;
  StreamConnection& operator=(const StreamConnection&) = delete;

  absl::Status OnReadable(int64_t now_us);
  // Also the end of connecting.
  absl::Status OnWritable(int64_t now_us);
  absl::Status OnTimer(int64_t now_us);
  absl::Status Send(const Frame& frame);
  // Writes what there is, as far as the socket takes it and until so many bytes have moved: how
  // much one connection may before others have their turn.
  absl::Status Pump(int64_t now_us, int64_t turn_bytes = kTurnBytes);
  // Whether to wait for the socket to turn writable.
  bool WantsToWrite() const;
  // When OnTimer has something to do at the latest.
  int64_t NextTimerUs() const;

  // Lets go of the leases of transfers that have ended.
  virtual void ReleaseEndedTransfers() = 0;
  // Input has arrived that the socket no longer tells of: call OnReadable again.
  virtual bool HasUnread() const { return false; }
  // What keeps this connection from going on.
  virtual PoolWait waits_for_pool() const { return PoolWait::kNothing; }
  // Whether to wait for the socket to turn readable.
  bool WantsToRead() const { return !ReadingPaused(); }
  // Whether the peer answers so soon that it pays to wait for it without sleeping.
  virtual bool AnswersAtOnce() const { return false; }
  // The connection is closed: fails its transfers.
  void Lost(const absl::Status& why);

  PeerId peer() const { return peer_; }
  bool opened_by_us() const { return !address_.empty(); }
  const std::string& address() const { return address_; }
  // The handshake has succeeded.
  bool open() const { return state_ == State::kOpen; }
  // An accepted one that has named a transfer that was expected here, and is so no stranger.
  bool known() const { return known_; }
  int fd() const { return socket_.get(); }
  static constexpr int64_t kTurnBytes = 8 << 20;
  // What the socket is watched for; none: it is not. The owner's.
  std::optional<uint32_t> watched_events;

 protected:
  // ---- what differs between the media ----
  virtual PullMode pulls() const = 0;
  // What connecting came to, once the stream turned writable for the first time.
  virtual absl::Status ConnectOutcome() const;
  // As readv and sendmsg do: bytes moved, or -1 and errno.
  virtual ssize_t ReadSome(std::span<iovec> buffers) = 0;
  virtual ssize_t WriteSome(std::span<iovec> buffers) = 0;
  // Opened by us, and the receiver has accepted.
  virtual absl::Status OnAccepted() { return absl::OkStatus(); }
  // Accepted by us, and so is the sender, who said this.
  virtual absl::Status OnGreeted(const HelloFrame&) { return absl::OkStatus(); }
  // Whether both ends are on one host, and so have one monotonic clock.
  virtual bool SharesClock() const { return false; }
  // Whether blocks go, and may be sent to us, in slices of some layers.
  virtual bool MovesLayers() const { return true; }
  // A frame from the sender that only one medium has; InvalidArgument for those of the others.
  virtual absl::Status OnPayloadFrame(Frame frame, int64_t now_us) = 0;
  // The same from the receiver.
  virtual absl::Status OnPayloadAnswer(Frame frame, int64_t now_us);
  // What a medium waits for beside the stream; while the connection is open.
  virtual absl::Status OnPayloadTimer(int64_t) { return absl::OkStatus(); }
  virtual int64_t NextPayloadTimerUs() const;
  // All bytes of a payload in the stream arrived.
  virtual void OnLanded(BlockLanding, int64_t) {}
  // Nothing is read while this is true: what was read waits for the pool.
  virtual bool ReadingPaused() const { return false; }
  // Goes on with what waits for the pool, as far as that goes.
  virtual absl::Status ResumeReading(int64_t) { return absl::OkStatus(); }
  // Gives the writer the next blocks, if it has room for them.
  virtual absl::Status QueueBlocks(int64_t now_us) = 0;
  // Whether QueueBlocks has something to do.
  virtual bool HasBlocksToQueue() const { return node_.sender().HasBlocksFor(peer_); }

  // The payload of the frame that was read last goes there; its time limit begins.
  void StartPayload(BlockLanding landing, int64_t now_us);
  absl::Status Unexpected(const Frame& frame) const;
  // How the sender's pool is cut. REQUIRES: accepted by us, and open.
  const KvGeometry& sender_geometry() const { return sender_geometry_; }
  // Counts against this turn what moved, with what a system call and a frame cost: of the smallest
  // frames a turn's bytes would be 400,000, and everybody else would wait for seconds.
  void Moved(int64_t bytes) { turn_bytes_ += std::max(bytes, kLeastCharge); }
  int64_t left_in_turn() const { return turn_limit_ - turn_bytes_; }
  // A turn's time stands still, so that all that happens in it happens at once. How long a transfer
  // took is not of that kind: the time now, in a turn that began at `now_us`.
  int64_t Now(int64_t now_us) const {
    return clock_ == nullptr ? now_us : std::max(now_us, clock_->NowUs());
  }

  TransferNode& node_;
  const PeerId peer_;
  FileDescriptor socket_;
  FrameReader reader_;
  FrameWriter writer_;

 private:
  enum class State : uint8_t { kConnecting, kGreeting, kOpen, kRefused };
  static constexpr int64_t kLeastCharge = 4096;

  void StartFrameDeadline(int64_t now_us);
  // A payload whose bytes have all arrived.
  void TakeLanded(int64_t now_us);
  absl::Status OnFrame(Frame frame, int64_t now_us);
  absl::Status OnGreeting(const Frame& frame, int64_t now_us);
  absl::Status WatchLife(int64_t now_us);
  void ForgiveOwnPause(int64_t now_us);
  bool HasTransfers() const;

  const TcpOptions& options_;
  const Clock* const clock_;
  const std::string address_;   // of the receiver; empty when accepted
  KvGeometry sender_geometry_;  // set once a sender's Hello was accepted
  SenderLink link_;             // likewise
  State state_;
  int64_t state_deadline_us_;  // for connecting and greeting
  int64_t turn_bytes_ = 0;     // moved in the turn under way
  int64_t turn_limit_ = kTurnBytes;
  int64_t frame_deadline_us_ = 0;  // 0: between frames
  bool watching_life_ = false;
  int64_t last_heard_us_ = 0;
  int64_t next_ping_us_ = 0;
  bool known_ = false;
  bool pong_queued_ = false;  // at most one answer waits, however many pings come
};

}  // namespace baton
