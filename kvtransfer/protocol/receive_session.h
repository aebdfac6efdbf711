// State machine for one transfer at its receiver. It tracks which blocks were announced,
// requested and landed.
//
//   expected ──Announce──▶ bound to one peer ──Announce, Pull, Block …──▶ complete
//
// Announcements, requests and landings count in the sender's blocks. The link of the first
// announcement gives their size. Events count in the receiver's blocks.
//
// Invariants:
//  - Everything that landed was requested, and everything requested was announced.
//  - Parts of blocks are requested and land in the order of pull_order.h, each part once.
//  - With requested pulls, whole blocks that are requested and have not landed never exceed the
//    pull window.
//  - After the first Announce, only frames from its peer count.
//
// Pure: no thread, socket or clock. Any error means that the transfer has failed. TransferReceiver
// then ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_pool_layout.h"
#include "common/strong_int.h"
#include "kvtransfer/protocol/busy_time.h"
#include "kvtransfer/protocol/pull_order.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/protocol/transfer_plan.h"
#include "kvtransfer/transport.h"

namespace baton {

// One connection between two workers. The owner of the state machines assigns the id and never
// reuses it.
using PeerId = StrongInt<struct PeerIdTag, uint64_t>;

// How a receiver requests blocks on a link.
//  - kRequested: by Pull frames, a window at a time.
//  - kImplied: an announcement requests all blocks that it names. For links on which a sent block
//    costs the sender no memory.
enum class PullMode : uint8_t { kRequested, kImplied };

// What a receiver knows about the link from a sender.
struct SenderLink {
  PullMode pulls = PullMode::kRequested;
  int32_t block_size = 0;  // of the sender's pool; stated in its Hello and checked there
  // The sender is on this host, so both take times from the same monotonic clock.
  bool shares_clock = false;
};

// Checks whether a spec fits the pool. InvalidArgument names the field and the limit.
absl::Status CheckReceiveSpec(const KvPoolLayout& layout, const ReceiveSpec& spec);

class ReceiveSession {
 public:
  // `layout` outlives this. REQUIRES: CheckReceiveSpec. `serial` distinguishes this session from an
  // earlier one with the same transfer id.
  ReceiveSession(const KvPoolLayout& layout, ReceiveSpec spec, uint64_t serial, int64_t now_us);

  // FailedPrecondition if another peer is bound: the session continues. All other errors end the
  // session:
  //  - FailedPrecondition if the model has several KV groups and the sender's blocks are smaller
  //    than ours (transfer_plan.h).
  //  - InvalidArgument if the announcement does not fit the spec.
  absl::Status OnAnnounce(PeerId peer, const SenderLink& link, const AnnounceFrame& frame);
  // Returns where the payload lands. OutOfRange if the block, or its layers, are not the next
  // requested part. InvalidArgument for a wrong size or piece count.
  absl::StatusOr<LandingParts> OnBlock(const BlockFrame& frame) const;
  // The part that OnBlock accepted has landed and is verified. Returns true if it completes its
  // block.
  bool OnBlockLanded(int64_t bytes, int64_t now_us);
  // Returns what to request now, if anything. With implied pulls there is nothing to send, so it
  // returns nothing.
  std::optional<PullFrame> NextPull(int64_t now_us);

  bool complete() const { return final_ && landed_ == announced_.blocks; }
  // REQUIRES: complete(). The last part arrived at `now_us` or landed later in that round.
  DoneFrame MakeDone(int64_t now_us) const;
  const std::optional<PeerId>& peer() const { return peer_; }
  uint64_t id() const { return spec_.transfer_id; }
  uint64_t sender_transfer() const { return sender_transfer_; }
  uint64_t serial() const { return serial_; }
  int64_t deadline_us() const { return deadline_us_; }
  int64_t payload_bytes() const;  // payload of the whole transfer; REQUIRES: peer()
  int32_t block_count() const {
    return static_cast<int32_t>(spec_.blocks.size()) / layout_.groups();
  }

  // Returns an event with this session's progress.
  TransferEvent Event(TransferEvent::Kind kind, absl::Status status) const;

 private:
  int64_t first_token() const { return int64_t{spec_.first_block} * layout_.block_size(); }
  // Own blocks, from first_block on, of which all tokens have landed.
  int32_t BlocksDone() const;
  absl::Status CheckProgress(const AnnounceFrame& frame) const;

  const KvPoolLayout& layout_;
  ReceiveSpec spec_;
  MovedTokens moved_;
  uint64_t serial_;
  int64_t deadline_us_;

  std::optional<PeerId> peer_;
  SenderLink link_;
  SequenceBlocks theirs_;  // the sender's blocks that hold what this receiver lacks
  int32_t window_ = 0;
  uint64_t sender_transfer_ = 0;
  AnnouncedBlocks announced_;
  PullOrder order_{0, 0};  // counts blocks of theirs_
  int32_t landed_ = 0;     // whole blocks
  int64_t landed_us_ = 0;  // when the latest part landed
  bool final_ = false;
  std::string manifest_;
  int64_t bytes_ = 0;
  BusyTime busy_;
};

}  // namespace baton
