// One transfer, seen by its sender: what is computed, what was announced, asked for and sent.
//
// Its blocks are the sender's own, those that hold what the ticket asks for (SenderBlocks).
//
// Invariants: what is sent was dispatched, dispatched pulled, and pulled announced; blocks go out
// in the order of pull_order.h, each part of one once; the receiver's Done counts only when
// everything was announced as final and sent.
//
// Pure: no thread, socket or clock. Any error means that the transfer has failed; TransferSender
// ends it.
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

// Whether a ticket asks for a sequence of so many tokens up to its end, in blocks of a size that
// there is, and of so many KV groups; one that does not tell has blocks of `block_size`.
// InvalidArgument names the field.
absl::Status CheckTicket(const TransferTicket& ticket, int32_t tokens, int32_t block_size,
                         int32_t groups);

// Whether a spec fits the pool's block size: InvalidArgument names the field. The address is the
// transport's to judge.
absl::Status CheckSendSpec(const KvPoolLayout& layout, const SendSpec& spec);

// A block, or a layer range of it, on its way out: the frame lacks its piece CRCs.
struct BlockDispatch {
  uint64_t serial = 0;  // of the session; see TransferSender::IsLive
  GroupBlocks blocks;
  BlockFrame frame;
};

class SendSession {
 public:
  // `layout` outlives this. REQUIRES: CheckSendSpec.
  SendSession(const KvPoolLayout& layout, SendSpec spec, uint64_t serial, int64_t now_us);

  // From the engine, rows of blocks. InvalidArgument: more blocks than missing, too few at the end,
  // a row that CheckRows refuses, a manifest past its limit, anything after the final announcement.
  absl::Status Announce(const std::vector<BlockId>& rows, bool final, std::string manifest,
                        int64_t now_us);
  // Of all blocks that are left, `layers` layers are there. InvalidArgument: others are left, fewer
  // layers than before or more than there are, not of a transfer that may end early.
  absl::Status AnnounceLayers(const std::vector<BlockId>& rest, int32_t layers);
  // The announcement to send now: cumulative, so one frame stands for any number of calls. Without
  // `layers` only of whole blocks.
  AnnounceFrame MakeAnnounce(bool layers) const;
  // One that only says whose transfer this is.
  AnnounceFrame MakeIntroduction() const;

  // Of what that names, the next that is not pulled yet.
  std::optional<PullFrame> RestToPull(bool layers) const;

  // From the peer. OutOfRange when the range is not the next one or not announced yet.
  absl::Status OnPull(const PullFrame& frame, int64_t now_us);
  // FailedPrecondition when it comes before everything was sent. `landed_us`: as in DoneFrame; a
  // time that cannot be is taken for the nearest that can.
  absl::Status OnDone(int64_t landed_us, int64_t now_us);

  bool HasBlockToSend() const { return !order_.empty(); }
  // REQUIRES: HasBlockToSend().
  BlockDispatch NextBlock();
  void OnBlockSent(const BlockFrame& frame, int64_t now_us);

  uint64_t id() const { return spec_.sender_transfer; }
  uint64_t transfer_id() const { return spec_.ticket.transfer_id; }
  const TransferTicket& ticket() const { return spec_.ticket; }
  int32_t priority() const { return spec_.priority; }
  uint64_t serial() const { return serial_; }
  int64_t deadline_us() const { return deadline_us_; }

  TransferEvent Event(TransferEvent::Kind kind, absl::Status status) const;

  // Its host's to set.
  bool told = false;      // the receiver, of this transfer
  bool has_news = false;  // for the receiver

 private:
  absl::Status CheckBlocks(const std::vector<BlockId>& rows) const;
  size_t groups() const { return static_cast<size_t>(layout_->groups()); }
  AnnouncedBlocks announced(bool layers) const {
    return {.blocks = whole_, .layers = layers ? layers_ : 0};
  }

  const KvPoolLayout* layout_;
  SendSpec spec_;
  SequenceBlocks range_;  // of our blocks, that the ticket asks for
  MovedTokens moved_;
  uint64_t serial_;
  int64_t deadline_us_;

  std::vector<BlockId> rows_;  // announced, as a whole or by layers
  int32_t whole_ = 0;          // of them
  int32_t layers_ = 0;         // that the others have
  bool final_ = false;
  std::string manifest_;
  PullOrder order_;
  int64_t parts_under_way_ = 0;  // dispatched and not sent
  int32_t sent_ = 0;             // blocks, with their last layer
  int64_t bytes_ = 0;
  BusyTime busy_;
  int64_t final_us_ = 0;    // when that was announced
  int64_t exposed_us_ = 0;  // from then until all had landed, or where nobody tells, to the Done
};

}  // namespace baton
