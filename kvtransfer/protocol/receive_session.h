// One transfer, seen by its receiver: what was announced, what was asked for, what landed.
//
//   expected ──Announce──▶ bound to one peer ──Announce, Pull, Block …──▶ complete
//
// What is announced, asked for and lands are the sender's blocks, of its size, which the first
// announcement's link tells. Events count in the receiver's.
//
// Invariants: what landed was requested, and what was requested is announced; blocks are asked for
// and land in the order of pull_order.h, each part of one once; whole blocks requested and not
// landed never exceed the pull window, where pulls are requested. Only the peer of the first
// Announce is listened to.
//
// Pure: no thread, socket or clock. Any error means that the transfer has failed; TransferReceiver
// ends it.
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

// One connection between two workers, named by the host of the state machines. Never reused.
using PeerId = StrongInt<struct PeerIdTag, uint64_t>;

// How blocks are asked for on a link. Requested: by Pull frames, a window at a time. Implied: an
// announcement is a request for all it names, for links on which a block costs the sender no room.
enum class PullMode : uint8_t { kRequested, kImplied };

// What a receiver knows of the link that a sender speaks on.
struct SenderLink {
  PullMode pulls = PullMode::kRequested;
  int32_t block_size = 0;  // of the sender's pool, as it said in its Hello; checked there
  // The sender is on this host, has its monotonic clock, and takes times by it.
  bool shares_clock = false;
};

// Whether a spec fits the pool: InvalidArgument names the field and the limit.
absl::Status CheckReceiveSpec(const KvPoolLayout& layout, const ReceiveSpec& spec);

class ReceiveSession {
 public:
  // `layout` outlives this. REQUIRES: CheckReceiveSpec. `serial` tells this session from an earlier
  // one with the same transfer id.
  ReceiveSession(const KvPoolLayout& layout, ReceiveSpec spec, uint64_t serial, int64_t now_us);

  // FailedPrecondition when another peer is bound: the session goes on. All other errors end it:
  // FailedPrecondition when the model has several KV groups and the sender's blocks are smaller
  // than ours (transfer_plan.h); InvalidArgument when the announcement does not fit the spec.
  absl::Status OnAnnounce(PeerId peer, const SenderLink& link, const AnnounceFrame& frame);
  // Where the payload lands. OutOfRange when the block, or the layers of it, were not the next
  // asked for; InvalidArgument for a wrong size or piece count.
  absl::StatusOr<LandingParts> OnBlock(const BlockFrame& frame) const;
  // What OnBlock accepted lies verified in the pool. True: its block is whole with it.
  bool OnBlockLanded(int64_t bytes, int64_t now_us);
  // What to ask for now, if anything. Implied pulls are not sent: nothing.
  std::optional<PullFrame> NextPull(int64_t now_us);

  bool complete() const { return final_ && landed_ == announced_.blocks; }
  // REQUIRES: complete(), by what came at `now_us` or landed later in that turn.
  DoneFrame MakeDone(int64_t now_us) const;
  const std::optional<PeerId>& peer() const { return peer_; }
  uint64_t id() const { return spec_.transfer_id; }
  uint64_t sender_transfer() const { return sender_transfer_; }
  uint64_t serial() const { return serial_; }
  int64_t deadline_us() const { return deadline_us_; }
  int64_t payload_bytes() const;  // of the whole transfer; REQUIRES: peer()
  int32_t block_count() const {
    return static_cast<int32_t>(spec_.blocks.size()) / layout_.groups();
  }

  // An event with this session's progress.
  TransferEvent Event(TransferEvent::Kind kind, absl::Status status) const;

 private:
  int64_t first_token() const { return int64_t{spec_.first_block} * layout_.block_size(); }
  // Blocks of ours whose tokens have all landed, from first_block on.
  int32_t BlocksDone() const;
  absl::Status CheckProgress(const AnnounceFrame& frame) const;

  const KvPoolLayout& layout_;
  ReceiveSpec spec_;
  MovedTokens moved_;
  uint64_t serial_;
  int64_t deadline_us_;

  std::optional<PeerId> peer_;
  SenderLink link_;
  SequenceBlocks theirs_;  // the sender's blocks that hold what we lack
  int32_t window_ = 0;
  uint64_t sender_transfer_ = 0;
  AnnouncedBlocks announced_;
  PullOrder order_{0, 0};  // of theirs_
  int32_t landed_ = 0;     // whole ones
  int64_t landed_us_ = 0;  // the latest part of one
  bool final_ = false;
  std::string manifest_;
  int64_t bytes_ = 0;
  BusyTime busy_;
};

}  // namespace baton
