// One transfer, seen by its sender: what is computed, what was announced, asked for and sent.
//
// Its blocks are the sender's own, those that hold what the ticket asks for (SenderBlocks).
//
// Invariants: sent <= dispatched <= pulled <= announced <= their count; blocks go out in sequence
// order, once each; the receiver's Done counts only when everything was announced as final and
// sent.
//
// Pure: no thread, socket or clock. Any error means that the transfer has failed; TransferSender
// ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_cache_spec.h"
#include "common/strong_int.h"
#include "kvtransfer/busy_time.h"
#include "kvtransfer/transfer_frame.h"
#include "kvtransfer/transfer_plan.h"
#include "kvtransfer/transport.h"

namespace baton {

// Whether a ticket asks for a sequence of so many tokens up to its end, in blocks of a size that
// there is; one that does not tell has blocks of `block_size`. InvalidArgument names the field.
absl::Status CheckTicket(const TransferTicket& ticket, int32_t tokens, int32_t block_size);

// Whether a spec fits the pool's block size: InvalidArgument names the field. The address is the
// transport's to judge.
absl::Status CheckSendSpec(const KvLayout& layout, const SendSpec& spec);

// A block on its way out: the frame lacks its piece CRCs.
struct BlockDispatch {
  uint64_t serial = 0;  // of the session; see TransferSender::IsLive
  BlockId block;
  BlockFrame frame;
};

class SendSession {
 public:
  // REQUIRES: CheckSendSpec.
  SendSession(const KvLayout& layout, SendSpec spec, uint64_t serial, int64_t now_us);

  // From the engine. InvalidArgument: more blocks than missing, too few at the end, a block outside
  // the pool, a manifest past its limit, anything after the final announcement.
  absl::Status Announce(const std::vector<BlockId>& blocks, bool final, std::string manifest);
  // The announcement to send now: cumulative, so one frame stands for any number of calls.
  AnnounceFrame MakeAnnounce() const;

  // All that is announced and not pulled yet.
  PullFrame RestToPull() const;

  // From the peer. OutOfRange when the range is not the next one or not announced yet.
  absl::Status OnPull(const PullFrame& frame, int64_t now_us);
  // FailedPrecondition when it comes before everything was sent.
  absl::Status OnDone() const;

  bool HasBlockToSend() const { return dispatched_ < pulled_; }
  // REQUIRES: HasBlockToSend().
  BlockDispatch NextBlock();
  void OnBlockSent(int64_t bytes, int64_t now_us);

  uint64_t id() const { return spec_.sender_transfer; }
  uint64_t transfer_id() const { return spec_.ticket.transfer_id; }
  const TransferTicket& ticket() const { return spec_.ticket; }
  uint64_t serial() const { return serial_; }
  int64_t deadline_us() const { return deadline_us_; }

  TransferEvent Event(TransferEvent::Kind kind, absl::Status status) const;

 private:
  const KvLayout* layout_;
  SendSpec spec_;
  SequenceBlocks range_;  // of our blocks, that the ticket asks for
  uint64_t serial_;
  int64_t deadline_us_;

  std::vector<BlockId> blocks_;  // announced
  bool final_ = false;
  std::string manifest_;
  int32_t pulled_ = 0;
  int32_t dispatched_ = 0;
  int32_t sent_ = 0;
  int64_t bytes_ = 0;
  BusyTime busy_;
};

}  // namespace baton
