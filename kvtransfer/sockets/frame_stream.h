// Incremental codec for frames over a byte stream: FrameReader parses a stream, FrameWriter builds
// one. Block payloads go directly from and to pool memory (block_landing.h).
//
// Neither class does I/O. The host reads into, or writes from, the iovecs of Fill. It then calls
// Advance with the number of bytes moved.
//
// Bounds: a reader holds one frame, limited by its type's size and by twice the bytes that have
// arrived. A writer refuses control frames beyond kMaxQueuedBytes.
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
  // Until EndGreeting, only Hello and HelloReply are accepted. So an unknown peer cannot make a
  // larger buffer grow.
  void BeginGreeting() { greeting_ = true; }
  void EndGreeting() { greeting_ = false; }

  // Describes where the next bytes go. Returns the number of entries, at least one.
  int Fill(std::span<iovec> out);
  // `bytes` arrived there. Returns a frame when one is complete. An error is final: the stream is
  // out of sync or hostile.
  absl::StatusOr<std::optional<Frame>> Advance(int64_t bytes);

  // Sets where the payload goes, after Advance returned a Block with payload. REQUIRES: called
  // before the next Fill.
  void StartPayload(BlockLanding landing);
  // Returns the payload in progress, until TakeLanded.
  BlockLanding* landing() { return landing_ ? &*landing_ : nullptr; }
  // Returns the payload when all its bytes have arrived.
  std::optional<BlockLanding> TakeLanded();

  // True in the middle of a frame or payload. frame_bytes() is an upper bound of its size.
  bool mid_frame() const { return filled_ > 0 || header_.has_value() || landing_.has_value(); }
  int64_t frame_bytes() const;

 private:
  std::array<std::byte, kFrameHeaderBytes> header_bytes_;
  bool greeting_ = false;
  std::vector<std::byte> body_;  // grows as bytes arrive, up to header_->body_bytes
  size_t filled_ = 0;            // bytes of the header, or of the body once header_ is set
  std::optional<FrameHeader> header_;
  std::optional<BlockLanding> landing_;
};

class FrameWriter {
 public:
  static constexpr size_t kMaxQueuedBytes = 4 << 20;

  // ResourceExhausted if the peer leaves too much unread. The connection must then be closed.
  absl::Status Send(const Frame& frame);
  // REQUIRES: !block_under_way().
  void StartBlock(BlockDeparture departure);

  size_t queued_bytes() const { return queued_bytes_; }  // bytes of frames, without payloads
  bool empty() const { return queue_.empty() && !departure_; }
  bool block_under_way() const { return departure_.has_value(); }
  BlockDeparture* departure() { return departure_ ? &*departure_ : nullptr; }

  // Describes the next bytes. No entries if empty().
  int Fill(std::span<iovec> out);
  // `bytes` of them were written. Returns the block that was completed by them, if any.
  std::optional<BlockDispatch> Advance(int64_t bytes);

 private:
  void Queue(std::deque<std::string>& queue, std::string bytes);

  std::deque<std::string> queue_;  // sent before the payload of departure_
  size_t front_done_ = 0;          // bytes of queue_.front() already sent
  std::optional<BlockDeparture> departure_;
  std::deque<std::string> after_;  // sent after that payload
  size_t queued_bytes_ = 0;        // in queue_ and after_
};

}  // namespace baton
