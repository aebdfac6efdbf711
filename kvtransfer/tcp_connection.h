// One connection between a sender (who opened it) and a receiver (who accepted it): handshake,
// frames, signs of life, deadlines. Pure: the bytes go through a ByteStream, time is passed in.
//
//   connecting ──▶ greeting (Hello, HelloReply) ──▶ open        accepted and refused: refused ──▶
//   closed once the reply is out
//
// Every function that returns a Status means with an error: close this connection. The owner then
// tells the node (transfer_node.h) by Lost.
//
// A connection is cut when it does not connect or greet in time, when a frame once begun does not
// arrive in time, and, while transfers are open, when nothing at all was heard for
// `silence_timeout_ms`; each side pings to be heard. An accepted one without transfers is cut after
// a silence of `idle_timeout_ms`.
//
// Thread safety: belongs to the I/O thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kvtransfer/byte_stream.h"
#include "kvtransfer/frame_stream.h"
#include "kvtransfer/transfer_node.h"
#include "kvtransfer/transport.h"

namespace baton {

class TcpConnection {
 public:
  // Accepted from a sender.
  TcpConnection(TransferNode& node, const TcpOptions& options, PeerId peer,
                std::unique_ptr<ByteStream> stream, int64_t now_us);
  // Being opened to the receiver at `address`.
  TcpConnection(TransferNode& node, const TcpOptions& options, PeerId peer,
                std::unique_ptr<ByteStream> stream, std::string address, int64_t now_us);
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  absl::Status OnReadable(int64_t now_us);
  // Also the end of connecting.
  absl::Status OnWritable(int64_t now_us);
  absl::Status OnTimer(int64_t now_us);
  absl::Status Send(const Frame& frame);
  // Writes what there is, as far as the stream takes it.
  absl::Status Pump(int64_t now_us);
  // Whether to wait for the stream to turn writable.
  bool WantsToWrite() const;
  // When OnTimer has something to do at the latest.
  int64_t NextTimerUs() const;

  // Stops touching blocks of transfers that have ended.
  void ReleaseEndedTransfers();
  // The connection is closed: fails its transfers.
  void Lost(const absl::Status& why);

  PeerId peer() const { return peer_; }
  bool opened_by_us() const { return !address_.empty(); }
  ByteStream& stream() const { return *stream_; }

 private:
  enum class State : uint8_t { kConnecting, kGreeting, kOpen, kRefused };

  absl::Status OnFrame(Frame frame, int64_t now_us);
  absl::Status OnGreeting(const Frame& frame, int64_t now_us);
  absl::Status OnBlock(BlockFrame frame);
  void OnLanded(const BlockLanding& landing, int64_t now_us);
  absl::Status WatchLife(int64_t now_us);
  bool HasTransfers() const;

  TransferNode& node_;
  const TcpOptions& options_;
  const PeerId peer_;
  std::unique_ptr<ByteStream> stream_;
  const std::string address_;  // of the receiver; empty when accepted
  State state_;
  int64_t state_deadline_us_;  // for connecting and greeting
  FrameReader reader_;
  FrameWriter writer_;
  int64_t frame_deadline_us_ = 0;  // 0: between frames
  bool watching_life_ = false;
  int64_t last_heard_us_ = 0;
  int64_t next_ping_us_ = 0;
  bool pong_queued_ = false;  // at most one answer waits, however many pings come
};

}  // namespace baton
