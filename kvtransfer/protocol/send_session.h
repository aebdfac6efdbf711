// State machine for one transfer at its sender. It tracks which blocks are computed, announced,
// requested and sent.
//
// It counts in the sender's own blocks: those that hold what the ticket asks for (SenderBlocks).
//
// Invariants:
//  - Every sent part was dispatched, every dispatched part was pulled, and every pulled part was
//    announced.
//  - Parts of blocks are sent in the order of pull_order.h, each part once.
//  - The receiver's Done counts only after the final announcement, when everything was sent.
//
// Pure: no thread, socket or clock. Any error means that the transfer has failed. TransferSender
// then ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_pool_layout.h"
#include "common/strong_int.h"
#include "kvtransfer/protocol/busy_time.h"
#include "kvtransfer/protocol/pull_order.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/protocol/transfer_plan.h"
#include "kvtransfer/transport.h"

namespace baton {

// Checks a ticket for a sequence of `tokens` tokens and `groups` KV groups: its block size must be
// valid, and its blocks must reach the sequence's end. `block_size` applies to a ticket that names
// none. InvalidArgument names the field.
absl::Status CheckTicket(const TransferTicket& ticket, int32_t tokens, int32_t block_size,
                         int32_t groups);

// Checks whether a spec fits the pool's block size. InvalidArgument names the field. The transport
// checks the address.
absl::Status CheckSendSpec(const KvPoolLayout& layout, const SendSpec& spec);

// A block, or a layer range of it, to be sent now. Its frame still lacks the piece CRCs.
struct BlockDispatch {
  uint64_t serial = 0;  // of the session; see TransferSender::IsLive
  GroupBlocks blocks;
  BlockFrame frame;
};

class SendSession {
 public:
  // `layout` outlives this. REQUIRES: CheckSendSpec.
  SendSession(const KvPoolLayout& layout, SendSpec spec, uint64_t serial, int64_t now_us);

  // Rows of blocks from the engine. InvalidArgument in these cases:
  //  - More blocks than are missing, or too few at the end.
  //  - A row that CheckRows refuses.
  //  - A manifest over its limit.
  //  - A call after the final announcement.
  absl::Status Announce(const std::vector<BlockId>& rows, bool final, std::string manifest,
                        int64_t now_us);
  // The first `layers` layers of all remaining blocks are computed. InvalidArgument: `rest` is not
  // the remaining blocks, fewer layers than before, more layers than the model has, or a transfer
  // that may end early.
  absl::Status AnnounceLayers(const std::vector<BlockId>& rest, int32_t layers);
  // Returns the announcement to send now. It is cumulative, so one frame covers any number of
  // calls. Without `layers` it announces whole blocks only.
  AnnounceFrame MakeAnnounce(bool layers) const;
  // Returns an announcement without blocks. It only names the transfer and its sender.
  AnnounceFrame MakeIntroduction() const;

  // Returns the next announced part that is not pulled yet.
  std::optional<PullFrame> RestToPull(bool layers) const;

  // From the peer. OutOfRange if the range is not the next one or is not announced yet.
  absl::Status OnPull(const PullFrame& frame, int64_t now_us);
  // FailedPrecondition if not everything was sent yet. `landed_us` as in DoneFrame; an impossible
  // time is clamped to the nearest possible one.
  absl::Status OnDone(int64_t landed_us, int64_t now_us);

  bool HasBlockToSend() const { return !order_.empty(); }
  // REQUIRES: HasBlockToSend().
  BlockDispatch NextBlock();
  // Returns the payload bytes of what NextBlock would return. REQUIRES: HasBlockToSend().
  int64_t NextBlockBytes() const { return PayloadBytes(order_.Front()); }
  void OnBlockSent(const BlockFrame& frame, int64_t now_us);

  uint64_t id() const { return spec_.sender_transfer; }
  uint64_t transfer_id() const { return spec_.ticket.transfer_id; }
  const TransferTicket& ticket() const { return spec_.ticket; }
  int32_t priority() const { return spec_.priority; }
  uint64_t serial() const { return serial_; }
  int64_t deadline_us() const { return deadline_us_; }

  TransferEvent Event(TransferEvent::Kind kind, absl::Status status) const;

  // Set by TransferSender.
  bool told = false;      // the receiver knows of this transfer
  bool has_news = false;  // an announcement waits to be sent

 private:
  absl::Status CheckBlocks(const std::vector<BlockId>& rows) const;
  int64_t PayloadBytes(const BlockPart& part) const;
  size_t groups() const { return static_cast<size_t>(layout_->groups()); }
  AnnouncedBlocks announced(bool layers) const {
    return {.blocks = whole_, .layers = layers ? layers_ : 0};
  }

  const KvPoolLayout* layout_;
  SendSpec spec_;
  SequenceBlocks range_;  // our blocks that the ticket asks for
  MovedTokens moved_;
  uint64_t serial_;
  int64_t deadline_us_;

  std::vector<BlockId> rows_;  // announced, as whole blocks or by layers
  int32_t whole_ = 0;          // leading blocks that are announced as whole
  int32_t layers_ = 0;         // announced layers of the blocks behind them
  bool final_ = false;
  std::string manifest_;
  PullOrder order_;
  int64_t parts_under_way_ = 0;  // dispatched and not sent yet
  int32_t sent_ = 0;             // blocks sent up to their last layer
  int64_t bytes_ = 0;
  BusyTime busy_;
  int64_t final_us_ = 0;  // time of the final announcement
  // From then until everything had landed, or until Done if the receiver has another clock.
  int64_t exposed_us_ = 0;
};

}  // namespace baton
