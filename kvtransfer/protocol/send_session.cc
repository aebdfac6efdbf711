#include "kvtransfer/protocol/send_session.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kvtransfer/protocol/transfer_deadline.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {

absl::Status CheckTicket(const TransferTicket& ticket, int32_t tokens, int32_t block_size,
                         int32_t groups) {
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
  return CheckWindowBlocks("ticket", ticket.window_first_blocks, groups, ticket.first_block,
                           static_cast<int32_t>(whole));
}

absl::Status CheckSendSpec(const KvPoolLayout& layout, const SendSpec& spec) {
  RETURN_IF_ERROR(CheckTimeout(spec.timeout_ms));
  RETURN_IF_ERROR(CheckTimeout(spec.ticket.timeout_ms));
  if (spec.tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tokens %d is below the minimum of 1", spec.tokens));
  }
  return CheckTicket(spec.ticket, spec.tokens, layout.block_size(), layout.groups());
}

SendSession::SendSession(const KvPoolLayout& layout, SendSpec spec, uint64_t serial, int64_t now_us)
    : layout_(&layout),
      spec_(std::move(spec)),
      range_(SenderBlocks(spec_.ticket, spec_.tokens, layout.block_size())),
      moved_(spec_.ticket, spec_.tokens, layout.block_size(), WindowSizesOf(layout)),
      serial_(serial),
      order_(range_.count, layout.layers()) {
  // A ticket with timeout 0 leaves the timeout to the sender.
  const int64_t ticket_ms = spec_.ticket.timeout_ms;
  deadline_us_ =
      DeadlineUs(now_us, ticket_ms > 0 ? std::min(spec_.timeout_ms, ticket_ms) : spec_.timeout_ms);
}

absl::Status SendSession::CheckBlocks(const std::vector<BlockId>& rows) const {
  if (final_) return absl::InvalidArgumentError("announced again after the final announcement");
  RETURN_IF_ERROR(CheckRows(*layout_, rows, moved_, range_.first + whole_));
  const auto known = std::span(rows_).subspan(static_cast<size_t>(whole_) * groups());
  if (layers_ > 0 && !std::ranges::equal(known, rows)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d blocks announced; they must be the %d blocks of the layer announcement",
                        rows.size() / groups(), known.size() / groups()));
  }
  return absl::OkStatus();
}

absl::Status SendSession::Announce(const std::vector<BlockId>& rows, bool final,
                                   std::string manifest, int64_t now_us) {
  RETURN_IF_ERROR(CheckBlocks(rows));
  const size_t count = static_cast<size_t>(whole_) + rows.size() / groups();
  const auto limit = static_cast<size_t>(range_.count);
  if (count > limit || (final && count != limit && !spec_.may_end_early)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d blocks announced%s, the ticket asks for %d", count, final ? " at the end" : "", limit));
  }
  if (manifest.size() > kMaxManifestBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("manifest has %d bytes, the limit is %d",
                                                      manifest.size(), kMaxManifestBytes));
  }
  if (layers_ == 0) rows_.insert(rows_.end(), rows.begin(), rows.end());
  whole_ = static_cast<int32_t>(count);
  layers_ = 0;
  final_ = final;
  if (!final) return absl::OkStatus();
  manifest_ = std::move(manifest);
  final_us_ = now_us;
  return absl::OkStatus();
}

absl::Status SendSession::AnnounceLayers(const std::vector<BlockId>& rest, int32_t layers) {
  RETURN_IF_ERROR(CheckBlocks(rest));
  const auto left = static_cast<size_t>(range_.count - whole_);
  const size_t count = rest.size() / groups();
  if (count == 0 || count != left || spec_.may_end_early) {
    return absl::InvalidArgumentError(
        absl::StrFormat("layers of %d blocks announced, but %d blocks are left%s", count, left,
                        spec_.may_end_early ? ", and the transfer may end early" : ""));
  }
  if (layers < std::max(layers_, 1) || layers > layout_->layers()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d layers announced, outside [%d, %d]", layers, std::max(layers_, 1), layout_->layers()));
  }
  if (layers_ == 0) rows_.insert(rows_.end(), rest.begin(), rest.end());
  layers_ = layers;
  return absl::OkStatus();
}

AnnounceFrame SendSession::MakeAnnounce(bool layers) const {
  return {.transfer_id = transfer_id(),
          .receiver_epoch = spec_.ticket.receiver_epoch,
          .sender_transfer = id(),
          .first_block = range_.first,
          .block_count = range_.count,
          .tokens = spec_.tokens,
          .available = whole_,
          .final = final_,
          .manifest = manifest_,
          .layers = announced(layers).layers,
          .window_first_blocks = spec_.ticket.window_first_blocks};
}

AnnounceFrame SendSession::MakeIntroduction() const {
  AnnounceFrame frame = MakeAnnounce(/*layers=*/false);
  frame.available = 0;
  frame.final = false;
  frame.manifest.clear();
  return frame;
}

std::optional<PullFrame> SendSession::RestToPull(bool layers) const {
  const std::optional<BlockRun> run = order_.Next(announced(layers));
  if (!run) return std::nullopt;
  return PullFrame{.transfer_id = transfer_id(),
                   .sender_transfer = id(),
                   .first = range_.first + run->first,
                   .count = run->count,
                   .layers = run->layers};
}

absl::Status SendSession::OnPull(const PullFrame& frame, int64_t now_us) {
  const int64_t first = int64_t{frame.first} - range_.first;
  if (first < 0) {
    return absl::OutOfRangeError(absl::StrFormat(
        "pull of block %d, but the transfer begins at block %d", frame.first, range_.first));
  }
  const BlockRun run{
      .first = static_cast<int32_t>(first), .count = frame.count, .layers = frame.layers};
  RETURN_IF_ERROR(order_.Check(run, announced(/*layers=*/true)));
  order_.Ask(run);
  busy_.Start(now_us);
  return absl::OkStatus();
}

absl::Status SendSession::OnDone(int64_t landed_us, int64_t now_us) {
  if (final_ && static_cast<size_t>(sent_) * groups() == rows_.size()) {
    const int64_t end_us = landed_us == 0 ? now_us : std::min(landed_us, now_us);
    exposed_us_ = std::max<int64_t>(0, end_us - final_us_);
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("receiver sent Done after %d of %d blocks%s", sent_, range_.count,
                      final_ ? "" : ", before the final announcement"));
}

int64_t SendSession::PayloadBytes(const BlockPart& part) const {
  const int32_t index = range_.first + part.block;
  return BlockValidBytes(*layout_, ValidTokens(layout_->block_size(), spec_.tokens, index),
                         part.layers, moved_.GroupsOf(index, layout_->block_size()));
}

BlockDispatch SendSession::NextBlock() {
  CHECK(HasBlockToSend());
  const BlockPart part = order_.Front();
  order_.Pop();
  ++parts_under_way_;
  const int32_t index = range_.first + part.block;
  const int32_t valid = ValidTokens(layout_->block_size(), spec_.tokens, index);
  const auto row = std::span(rows_).subspan(static_cast<size_t>(part.block) * groups(), groups());
  return {.serial = serial_,
          .blocks = GroupBlocks(row),
          .frame = {.transfer_id = transfer_id(),
                    .receiver_epoch = spec_.ticket.receiver_epoch,
                    .sender_transfer = id(),
                    .block = index,
                    .valid_tokens = valid,
                    .payload_bytes = PayloadBytes(part),
                    .piece_crcs = {},
                    .layers = part.layers}};
}

void SendSession::OnBlockSent(const BlockFrame& frame, int64_t now_us) {
  if (Counted(*layout_, frame.layers).end() == layout_->layers()) ++sent_;
  bytes_ += frame.payload_bytes;
  --parts_under_way_;
  busy_.Touch(now_us, parts_under_way_ == 0 && order_.empty());
}

TransferEvent SendSession::Event(TransferEvent::Kind kind, absl::Status status) const {
  TransferEvent event;
  event.kind = kind;
  event.id = id();
  event.blocks_done = sent_;
  event.status = std::move(status);
  event.bytes = bytes_;
  event.busy_us = busy_.total_us();
  event.exposed_us = exposed_us_;
  return event;
}

}  // namespace baton
