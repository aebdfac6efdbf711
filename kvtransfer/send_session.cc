#include "kvtransfer/send_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kvtransfer/transfer_deadline.h"
#include "kvtransfer/transfer_plan.h"

namespace baton {

absl::Status CheckTicket(const TransferTicket& ticket, int32_t tokens, int32_t block_size) {
  if (ticket.block_size != 0) {
    RETURN_IF_ERROR(CheckBlockSize("ticket block_size", ticket.block_size));
    block_size = ticket.block_size;
  }
  const int64_t whole = BlocksForTokens(block_size, tokens);
  const int64_t named = int64_t{ticket.first_block} + ticket.block_count;
  if (ticket.first_block < 0 || ticket.block_count < 0 || named != whole) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "ticket first_block %d and block_count %d end at %d, but %d tokens of block size %d fill "
        "%d blocks",
        ticket.first_block, ticket.block_count, named, tokens, block_size, whole));
  }
  return absl::OkStatus();
}

absl::Status CheckSendSpec(const KvLayout& layout, const SendSpec& spec) {
  RETURN_IF_ERROR(CheckTimeout(spec.timeout_ms));
  RETURN_IF_ERROR(CheckTimeout(spec.ticket.timeout_ms));
  if (spec.tokens < 1) {
    return absl::InvalidArgumentError(absl::StrFormat("tokens %d, at least 1 needed", spec.tokens));
  }
  return CheckTicket(spec.ticket, spec.tokens, layout.block_size());
}

SendSession::SendSession(const KvLayout& layout, SendSpec spec, uint64_t serial, int64_t now_us)
    : layout_(&layout),
      spec_(std::move(spec)),
      range_(SenderBlocks(spec_.ticket, spec_.tokens, layout.block_size())),
      serial_(serial) {
  // A ticket without a time of its own leaves it to the sender.
  const int64_t ticket_ms = spec_.ticket.timeout_ms;
  deadline_us_ =
      DeadlineUs(now_us, ticket_ms > 0 ? std::min(spec_.timeout_ms, ticket_ms) : spec_.timeout_ms);
}

absl::Status SendSession::Announce(const std::vector<BlockId>& blocks, bool final,
                                   std::string manifest) {
  if (final_) return absl::InvalidArgumentError("announced again after the final announcement");
  for (const BlockId block : blocks) {
    if (block.value() < 0 || block.value() >= layout_->num_blocks()) {
      return absl::InvalidArgumentError(absl::StrFormat("block %d is outside the pool of %d blocks",
                                                        block.value(), layout_->num_blocks()));
    }
  }
  const size_t count = blocks_.size() + blocks.size();
  const auto limit = static_cast<size_t>(range_.count);
  if (count > limit || (final && count != limit && !spec_.may_end_early)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d blocks announced%s, the ticket asks for %d", count, final ? " at the end" : "", limit));
  }
  if (manifest.size() > kMaxManifestBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("manifest has %d bytes, the limit is %d",
                                                      manifest.size(), kMaxManifestBytes));
  }
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  final_ = final;
  if (final) manifest_ = std::move(manifest);
  return absl::OkStatus();
}

AnnounceFrame SendSession::MakeAnnounce() const {
  return {.transfer_id = transfer_id(),
          .receiver_epoch = spec_.ticket.receiver_epoch,
          .sender_transfer = id(),
          .first_block = range_.first,
          .block_count = range_.count,
          .tokens = spec_.tokens,
          .available = static_cast<int32_t>(blocks_.size()),
          .final = final_,
          .manifest = manifest_};
}

PullFrame SendSession::RestToPull() const {
  return {.transfer_id = transfer_id(),
          .sender_transfer = id(),
          .first = range_.first + pulled_,
          .count = static_cast<int32_t>(blocks_.size()) - pulled_};
}

absl::Status SendSession::OnPull(const PullFrame& frame, int64_t now_us) {
  const int32_t first = frame.first - range_.first;
  const int64_t announced = static_cast<int64_t>(blocks_.size());
  if (frame.count < 1 || first != pulled_ || int64_t{first} + frame.count > announced) {
    return absl::OutOfRangeError(absl::StrFormat(
        "pull of blocks [%d, +%d), but [%d, %d) are announced and not yet pulled", frame.first,
        frame.count, range_.first + pulled_, range_.first + announced));
  }
  pulled_ += frame.count;
  busy_.Start(now_us);
  return absl::OkStatus();
}

absl::Status SendSession::OnDone() const {
  if (final_ && sent_ == static_cast<int32_t>(blocks_.size())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("receiver says done after %d of %d blocks%s", sent_, range_.count,
                      final_ ? "" : ", before the final announcement"));
}

BlockDispatch SendSession::NextBlock() {
  CHECK(HasBlockToSend());
  const BlockId block = blocks_[dispatched_];
  const int32_t index = range_.first + dispatched_;
  ++dispatched_;
  const int32_t valid = ValidTokens(layout_->block_size(), spec_.tokens, index);
  return {.serial = serial_,
          .block = block,
          .frame = {.transfer_id = transfer_id(),
                    .receiver_epoch = spec_.ticket.receiver_epoch,
                    .sender_transfer = id(),
                    .block = index,
                    .valid_tokens = valid,
                    .payload_bytes = BlockValidBytes(*layout_, valid),
                    .piece_crcs = {}}};
}

void SendSession::OnBlockSent(int64_t bytes, int64_t now_us) {
  ++sent_;
  bytes_ += bytes;
  busy_.Touch(now_us, sent_ == pulled_);
}

TransferEvent SendSession::Event(TransferEvent::Kind kind, absl::Status status) const {
  TransferEvent event;
  event.kind = kind;
  event.id = id();
  event.blocks_done = sent_;
  event.status = std::move(status);
  event.bytes = bytes_;
  event.busy_us = busy_.total_us();
  return event;
}

}  // namespace baton
