// All transfers of one worker: joins its TransferSender and TransferReceiver into one interface for
// the host that moves bytes (loopback, sockets, simulation).
//
// A host runs rounds, each in this order:
//  1. Apply the posted commands.
//  2. Deliver the frames that arrived.
//  3. OnTimer.
//  4. Connect to TakeConnects, send TakeFrames.
//  5. Release the leases of placements and dispatches that are no longer live.
//  6. Pass TakeEvents to the engine.
//
// Rule 2 of transport.h depends on the order of steps 5 and 6. A released lease may leave a copy
// running, and TakeEvents returns nothing until that copy has ended.
//
// Pure. Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/moved_kv_bytes.h"
#include "kvtransfer/pool/block_checksums.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/protocol/transfer_receiver.h"
#include "kvtransfer/protocol/transfer_sender.h"
#include "kvtransfer/transfer_pool.h"
#include "kvtransfer/transport.h"

namespace baton {

struct CancelReceiveCommand {
  uint64_t transfer_id = 0;
};
// Blocks are rows (transport.h), except in WrittenCommand.
struct AnnounceCommand {
  uint64_t sender_transfer = 0;
  std::vector<BlockId> blocks;
  bool final = false;
  std::string manifest;
  int64_t posted_us = 0;  // 0: the time when the command is applied
};
struct AnnounceLayersCommand {
  uint64_t sender_transfer = 0;
  std::vector<BlockId> rest;
  int32_t layers = 0;
};
struct CancelSendCommand {
  uint64_t sender_transfer = 0;
};
struct WrittenCommand {
  std::vector<BlockId> full;
  std::vector<BlockId> part;
  int32_t group = 0;
};
// Commands that the engine posts.
using TransferCommand = std::variant<ReceiveSpec, CancelReceiveCommand, SendSpec, AnnounceCommand,
                                     AnnounceLayersCommand, CancelSendCommand, WrittenCommand>;

class TransferNode {
 public:
  // `pool` outlives this.
  TransferNode(TransferPool& pool, KvFingerprint fingerprint, Epoch epoch);
  TransferNode(const TransferNode&) = delete;
  TransferNode& operator=(const TransferNode&) = delete;

  void Apply(TransferCommand command, int64_t now_us);
  // Sets `apply_posted`, which applies the commands that were posted meanwhile. It is called before
  // every announcement. A transfer's Expect is posted before its ticket leaves the worker. So an
  // announcement that arrives earlier in the host's round than the Expect is applied still finds
  // it.
  void ApplyPostedBeforeAnnouncements(std::function<void(int64_t now_us)> apply_posted) {
    apply_posted_ = std::move(apply_posted);
  }

  // Handshake. The side that opened the link sends Hello, the other side answers. Each checks what
  // it receives.
  HelloFrame MakeHello(const std::string& address) const;
  // Returns `accepted` with our epoch, or a refusal with the field that differs and no epoch.
  HelloReplyFrame AnswerHello(const HelloFrame& hello) const;
  // Returns the protocol version to use with a sender after its Hello was accepted.
  absl::StatusOr<uint32_t> VersionWith(const HelloFrame& hello) const {
    return CommonVersion(fingerprint_.protocol, hello.fingerprint.protocol);
  }
  // FailedPrecondition with the peer's reason if the reply is a refusal.
  static absl::Status CheckHelloReply(const HelloReplyFrame& reply);

  // Handles a frame on an open link: FromReceiver on a link that this node opened (it sends blocks
  // there), FromSender on one that it accepted. The host handles Block, Hello, Ping and Pong
  // itself. A frame that does not belong to the direction is InvalidArgument and ends the link.
  absl::Status OnFrameFromReceiver(PeerId peer, const Frame& frame, int64_t now_us);
  absl::Status OnFrameFromSender(PeerId peer, const SenderLink& link, const Frame& frame,
                                 int64_t now_us);

  void OnTimer(int64_t now_us);
  int64_t NextDeadlineUs() const;
  std::vector<OutgoingFrame> TakeFrames(int64_t now_us);
  // True if there are events, even if they cannot be taken yet.
  bool has_events() const { return receiver_.has_events() || sender_.has_events(); }
  // Returns nothing while the pool has not settled. If a copy into the pool failed unseen, all
  // received transfers fail first, and their events come in a later round.
  std::vector<TransferEvent> TakeEvents();

  TransferPool& pool() const { return pool_; }
  const KvPoolLayout& layout() const { return pool_.layout(); }
  Epoch epoch() const { return epoch_; }
  BlockChecksums& checksums() { return checksums_; }
  // The host counts here what it moves. May be used from any thread.
  MovedKvBytes& moved() { return moved_; }
  const MovedKvBytes& moved() const { return moved_; }
  TransferSender& sender() { return sender_; }
  TransferReceiver& receiver() { return receiver_; }
  const TransferSender& sender() const { return sender_; }
  const TransferReceiver& receiver() const { return receiver_; }

 private:
  TransferPool& pool_;
  const KvFingerprint fingerprint_;
  const Epoch epoch_;
  BlockChecksums checksums_;
  TransferSender sender_;
  TransferReceiver receiver_;
  MovedKvBytes moved_;
  std::function<void(int64_t now_us)> apply_posted_;
};

}  // namespace baton
