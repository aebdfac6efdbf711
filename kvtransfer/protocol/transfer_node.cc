#include "kvtransfer/protocol/transfer_node.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

template <typename T>
void Append(std::vector<T>& to, std::vector<T> from) {
  if (to.empty()) return to.swap(from);
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

absl::Status Unexpected(const Frame& frame, const char* from) {
  return absl::InvalidArgumentError(absl::StrCat("unexpected ", FrameName(frame), " from ", from));
}

}  // namespace

TransferNode::TransferNode(TransferPool& pool, KvFingerprint fingerprint, Epoch epoch)
    : pool_(pool),
      fingerprint_(std::move(fingerprint)),
      epoch_(epoch),
      checksums_(pool_.layout()),
      sender_(pool_.layout()),
      receiver_(pool_.layout(), epoch) {}

void TransferNode::Apply(TransferCommand command, int64_t now_us) {
  if (auto* expect = std::get_if<ReceiveSpec>(&command)) {
    checksums_.Forget(expect->blocks);
    receiver_.Expect(std::move(*expect), now_us);
  } else if (auto* cancel_receive = std::get_if<CancelReceiveCommand>(&command)) {
    receiver_.Cancel(cancel_receive->transfer_id);
  } else if (auto* start = std::get_if<SendSpec>(&command)) {
    sender_.Start(std::move(*start), now_us);
  } else if (auto* announce = std::get_if<AnnounceCommand>(&command)) {
    sender_.Announce(announce->sender_transfer, announce->blocks, announce->final,
                     std::move(announce->manifest),
                     announce->posted_us == 0 ? now_us : announce->posted_us);
  } else if (const auto* layers = std::get_if<AnnounceLayersCommand>(&command)) {
    sender_.AnnounceLayers(layers->sender_transfer, layers->rest, layers->layers);
  } else if (const auto* written = std::get_if<WrittenCommand>(&command)) {
    checksums_.OnWritten(written->full, written->part, written->group);
  } else {
    sender_.Cancel(std::get<CancelSendCommand>(command).sender_transfer);
  }
}

HelloFrame TransferNode::MakeHello(const std::string& address) const {
  return {.fingerprint = fingerprint_, .epoch = epoch_, .node = address};
}

HelloReplyFrame TransferNode::AnswerHello(const HelloFrame& hello) const {
  const absl::Status status = CheckCompatible(fingerprint_, hello.fingerprint);
  // A refused peer does not need the epoch. Transfers are named by id and epoch, so the epoch stays
  // private.
  return {.accepted = status.ok(),
          .epoch = status.ok() ? epoch_ : Epoch(0),
          .reason = std::string(status.message())};
}

absl::Status TransferNode::CheckHelloReply(const HelloReplyFrame& reply) {
  if (reply.accepted) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("refused by the receiver: ", reply.reason));
}

absl::Status TransferNode::OnFrameFromReceiver(PeerId peer, const Frame& frame, int64_t now_us) {
  if (const auto* pull = std::get_if<PullFrame>(&frame)) {
    sender_.OnPull(peer, *pull, now_us);
  } else if (const auto* done = std::get_if<DoneFrame>(&frame)) {
    sender_.OnDone(peer, *done, now_us);
  } else if (const auto* abort = std::get_if<AbortFrame>(&frame)) {
    sender_.OnAbort(peer, *abort);
  } else {
    return Unexpected(frame, "the receiver");
  }
  return absl::OkStatus();
}

absl::Status TransferNode::OnFrameFromSender(PeerId peer, const SenderLink& link,
                                             const Frame& frame, int64_t now_us) {
  if (const auto* announce = std::get_if<AnnounceFrame>(&frame)) {
    if (apply_posted_) apply_posted_(now_us);
    receiver_.OnAnnounce(peer, link, *announce, now_us);
  } else if (const auto* abort = std::get_if<AbortFrame>(&frame)) {
    receiver_.OnAbort(peer, *abort);
  } else {
    return Unexpected(frame, "the sender");
  }
  return absl::OkStatus();
}

void TransferNode::OnTimer(int64_t now_us) {
  receiver_.OnTimer(now_us);
  sender_.OnTimer(now_us);
}

int64_t TransferNode::NextDeadlineUs() const {
  return std::min(receiver_.NextDeadlineUs(), sender_.NextDeadlineUs());
}

std::vector<OutgoingFrame> TransferNode::TakeFrames(int64_t now_us) {
  std::vector<OutgoingFrame> frames = receiver_.TakeFrames();
  Append(frames, sender_.TakeFrames(now_us));
  return frames;
}

std::vector<TransferEvent> TransferNode::TakeEvents() {
  if (!has_events() || !pool_.Settled()) return {};
  if (const absl::Status lost = pool_.TakeStoreError(); !lost.ok()) {
    receiver_.OnStoreFailed(lost);
    return {};  // the next round first releases the leases of the failed transfers
  }
  std::vector<TransferEvent> events = receiver_.TakeEvents();
  Append(events, sender_.TakeEvents());
  return events;
}

}  // namespace baton
