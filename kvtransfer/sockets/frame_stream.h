// Frames over a byte stream, a few bytes at a time: FrameReader takes a stream apart, FrameWriter
// puts one together. Block payloads go straight from and to pool memory (block_landing.h).
//
// Neither does I/O: the host reads into or writes from the iovecs of Fill and says with Advance how
// many bytes moved.
//
// Bounds: a reader holds one frame (its type's limit, and no more than twice what has arrived of
// it); a writer refuses control frames past kMaxQueuedBytes.
//
// Thread safety: belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/pool/block_landing.h"
#include "kvtransfer/protocol/transfer_frame.h"

namespace baton {

class FrameReader {
 public:
  // Until EndGreeting, only Hello and HelloReply are read: a stranger makes nothing else grow.
  void BeginGreeting() { greeting_ = true; }
  void EndGreeting() { greeting_ = false; }

  // Where the next bytes go; returns the number of entries, at least one.
  int Fill(std::span<iovec> out);
  // `bytes` arrived there. Returns a frame when one became whole; an error is final: the stream is
  // out of step or hostile.
  absl::StatusOr<std::optional<Frame>> Advance(int64_t bytes);

  // After Advance returned a Block with payload: where it goes. REQUIRES: called before the next
  // Fill.
  void StartPayload(BlockLanding landing);
  // The payload under way, until TakeLanding.
  BlockLanding* landing() { return landing_ ? &*landing_ : nullptr; }
  // The payload when all its bytes arrived.
  std::optional<BlockLanding> TakeLanded();

  // In the middle of a frame or payload, whose size this is an upper bound for.
  bool mid_frame() const { return filled_ > 0 || header_.has_value() || landing_.has_value(); }
  int64_t frame_bytes() const;

 private:
  std::array<std::byte, kFrameHeaderBytes> header_bytes_;
  bool greeting_ = false;
  std::vector<std::byte> body_;  // grows as bytes arrive, up to header_->body_bytes
  size_t filled_ = 0;            // of the header, or of the body once header_ is set
  std::optional<FrameHeader> header_;
  std::optional<BlockLanding> landing_;
};

class FrameWriter {
 public:
  static constexpr size_t kMaxQueuedBytes = 4 << 20;

  // ResourceExhausted when the peer has left too much unread; the connection is then to be cut.
  absl::Status Send(const Frame& frame);
  // REQUIRES: !block_under_way().
  void StartBlock(BlockDeparture departure);

  size_t queued_bytes() const { return queued_bytes_; }  // of frames, not payloads
  bool empty() const { return queue_.empty() && !departure_; }
  bool block_under_way() const { return departure_.has_value(); }
  BlockDeparture* departure() { return departure_ ? &*departure_ : nullptr; }

  // The next bytes; zero entries when empty().
  int Fill(std::span<iovec> out);
  // `bytes` of them were taken. Returns the block that went out with them, if one did.
  std::optional<BlockDispatch> Advance(int64_t bytes);

 private:
  void Queue(std::deque<std::string>& queue, std::string bytes);

  std::deque<std::string> queue_;  // goes out before the payload of departure_
  size_t front_done_ = 0;          // bytes of queue_.front() already out
  std::optional<BlockDeparture> departure_;
  std::deque<std::string> after_;  // goes out after it
  size_t queued_bytes_ = 0;        // in queue_ and after_
};

}  // namespace baton
