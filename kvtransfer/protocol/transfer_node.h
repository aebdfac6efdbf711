// One worker's end of every transfer: sender and receiver behind one door, for the hosts that move
// bytes (loopback, TCP, simulation).
//
// A host's round: Apply commands → deliver frames that arrived → OnTimer → make TakeConnects, send
// TakeFrames → let go of the leases of placements and dispatches that are no longer live →
// TakeEvents to the engine. The order of the last two is what rule 2 of transport.h rests on: a
// lease that was let go may leave a copy under way, and TakeEvents has nothing before it has ended.
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
// Blocks are rows (transport.h), but for those of WrittenCommand.
struct AnnounceCommand {
  uint64_t sender_transfer = 0;
  std::vector<BlockId> blocks;
  bool final = false;
  std::string manifest;
  int64_t posted_us = 0;  // 0: when it is carried out
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
// What the engine posts.
using TransferCommand = std::variant<ReceiveSpec, CancelReceiveCommand, SendSpec, AnnounceCommand,
                                     AnnounceLayersCommand, CancelSendCommand, WrittenCommand>;

class TransferNode {
 public:
  // `pool` outlives this.
  TransferNode(TransferPool& pool, KvFingerprint fingerprint, Epoch epoch);
  TransferNode(const TransferNode&) = delete;
  TransferNode& operator=(const TransferNode&) = delete;

  void Apply(TransferCommand command, int64_t now_us);
  // `apply_posted` applies the commands that were posted meanwhile; it is called before every
  // announcement. A transfer's Expect was posted before its ticket went out, so an announcement
  // that overtakes it in the host's round finds it all the same.
  void ApplyPostedBeforeAnnouncements(std::function<void(int64_t now_us)> apply_posted) {
    apply_posted_ = std::move(apply_posted);
  }

  // Handshake. The side that opened the link says Hello, the other answers; both check.
  HelloFrame MakeHello(const std::string& address) const;
  // `accepted` with the epoch, or a reason that names the field and no epoch.
  HelloReplyFrame AnswerHello(const HelloFrame& hello) const;
  // The protocol version to speak with a sender whose Hello was accepted.
  absl::StatusOr<uint32_t> VersionWith(const HelloFrame& hello) const {
    return CommonVersion(fingerprint_.protocol, hello.fingerprint.protocol);
  }
  // FailedPrecondition with the peer's reason.
  static absl::Status CheckHelloReply(const HelloReplyFrame& reply);

  // A frame on an open link that this node opened (it sends blocks there) or accepted (it
  // receives). Blocks, Hello, Ping and Pong are the host's; any other that does not belong to the
  // direction is InvalidArgument and ends the link.
  absl::Status OnFrameFromReceiver(PeerId peer, const Frame& frame, int64_t now_us);
  absl::Status OnFrameFromSender(PeerId peer, const SenderLink& link, const Frame& frame,
                                 int64_t now_us);

  void OnTimer(int64_t now_us);
  int64_t NextDeadlineUs() const;
  std::vector<OutgoingFrame> TakeFrames(int64_t now_us);
  // Whether there are events, be they to be taken yet or not.
  bool has_events() const { return receiver_.has_events() || sender_.has_events(); }
  // Nothing while the pool has not settled.
  std::vector<TransferEvent> TakeEvents();

  TransferPool& pool() const { return pool_; }
  const KvPoolLayout& layout() const { return pool_.layout(); }
  Epoch epoch() const { return epoch_; }
  BlockChecksums& checksums() { return checksums_; }
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
  std::function<void(int64_t now_us)> apply_posted_;
};

}  // namespace baton
