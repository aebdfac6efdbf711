#include "kvtransfer/receive_session.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "kvtransfer/transfer_deadline.h"
#include "kvtransfer/transfer_plan.h"

namespace baton {
namespace {

// Enough bytes asked for ahead that the sender never waits for a Pull, few enough that transfers
// share a connection fairly.
constexpr int64_t kWindowBytes = 8 << 20;

int32_t PullWindow(const KvLayout& layout) {
  return static_cast<int32_t>(std::clamp<int64_t>(kWindowBytes / layout.bytes_per_block(), 4, 256));
}

}  // namespace

absl::Status CheckReceiveSpec(const KvLayout& layout, const ReceiveSpec& spec) {
  if (absl::Status status = CheckTimeout(spec.timeout_ms); !status.ok()) return status;
  if (spec.tokens < 1) {
    return absl::InvalidArgumentError(absl::StrFormat("tokens %d, at least 1 needed", spec.tokens));
  }
  const int64_t whole = BlocksForTokens(layout, spec.tokens);
  const int64_t named = int64_t{spec.first_block} + static_cast<int64_t>(spec.blocks.size());
  if (spec.first_block < 0 || named != whole) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "first_block %d and %d blocks end at %d, but %d tokens of block size %d fill %d blocks",
        spec.first_block, spec.blocks.size(), named, spec.tokens, layout.block_size(), whole));
  }
  absl::flat_hash_set<BlockId> seen;
  for (const BlockId block : spec.blocks) {
    if (block.value() < 0 || block.value() >= layout.num_blocks()) {
      return absl::InvalidArgumentError(absl::StrFormat("block %d is outside the pool of %d blocks",
                                                        block.value(), layout.num_blocks()));
    }
    if (!seen.insert(block).second) {
      return absl::InvalidArgumentError(absl::StrFormat("block %d is named twice", block.value()));
    }
  }
  return absl::OkStatus();
}

ReceiveSession::ReceiveSession(const KvLayout& layout, ReceiveSpec spec, uint64_t serial,
                               int64_t now_us)
    : layout_(layout),
      spec_(std::move(spec)),
      serial_(serial),
      deadline_us_(DeadlineUs(now_us, spec_.timeout_ms)),
      window_(PullWindow(layout)) {}

absl::Status ReceiveSession::OnAnnounce(PeerId peer, PullMode pulls, const AnnounceFrame& frame) {
  if (peer_ && (*peer_ != peer || sender_transfer_ != frame.sender_transfer)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("transfer %d already has a sender (its transfer %d, not %d)", id(),
                        sender_transfer_, frame.sender_transfer));
  }
  peer_ = peer;
  pulls_ = pulls;
  sender_transfer_ = frame.sender_transfer;
  if (frame.first_block != spec_.first_block || frame.block_count != block_count() ||
      frame.tokens != spec_.tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("announced first_block %d, block_count %d, tokens %d; expected %d, %d, %d",
                        frame.first_block, frame.block_count, frame.tokens, spec_.first_block,
                        block_count(), spec_.tokens));
  }
  if (frame.available < available_ || frame.available > block_count()) {
    return absl::InvalidArgumentError(absl::StrFormat("available %d is outside [%d, %d]",
                                                      frame.available, available_, block_count()));
  }
  if (final_) return absl::InvalidArgumentError("announced again after the final announcement");
  if (frame.final && frame.available != block_count() && !spec_.may_end_early) {
    return absl::InvalidArgumentError(
        absl::StrFormat("final announcement with %d of %d blocks", frame.available, block_count()));
  }
  available_ = frame.available;
  final_ = frame.final;
  if (frame.final) manifest_ = frame.manifest;
  return absl::OkStatus();
}

absl::StatusOr<BlockId> ReceiveSession::OnBlock(const BlockFrame& frame) const {
  const int32_t next = spec_.first_block + landed_;
  if (landed_ == requested_ || frame.block != next) {
    return absl::OutOfRangeError(absl::StrFormat("got block %d, asked for [%d, %d)", frame.block,
                                                 next, spec_.first_block + requested_));
  }
  const int32_t valid = ValidTokens(layout_, spec_.tokens, frame.block);
  if (frame.valid_tokens != valid) {
    return absl::InvalidArgumentError(absl::StrFormat("block %d has valid_tokens %d, expected %d",
                                                      frame.block, frame.valid_tokens, valid));
  }
  const int64_t bytes = BlockValidBytes(layout_, valid);
  if (frame.payload_bytes != bytes ||
      frame.piece_crcs.size() != static_cast<size_t>(PieceCount(layout_))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("block %d has %d bytes in %d pieces, expected %d in %d", frame.block,
                        frame.payload_bytes, frame.piece_crcs.size(), bytes, PieceCount(layout_)));
  }
  return spec_.blocks[landed_];
}

void ReceiveSession::OnBlockLanded(int64_t bytes, int64_t now_us) {
  ++landed_;
  bytes_ += bytes;
  busy_.Touch(now_us, landed_ == requested_);
}

std::optional<PullFrame> ReceiveSession::NextPull(int64_t now_us) {
  if (pulls_ == PullMode::kImplied) {
    if (requested_ < available_) busy_.Start(now_us);
    requested_ = available_;
    return std::nullopt;
  }
  const int32_t limit = std::min(available_, landed_ + window_);
  // Half a window at a time, unless that is all there is.
  if (limit == requested_ || (limit < available_ && limit - requested_ < window_ / 2)) {
    return std::nullopt;
  }
  PullFrame pull{.transfer_id = id(),
                 .sender_transfer = sender_transfer_,
                 .first = spec_.first_block + requested_,
                 .count = limit - requested_};
  requested_ = limit;
  busy_.Start(now_us);
  return pull;
}

int64_t ReceiveSession::payload_bytes() const {
  return PieceValidBytes(layout_, 1) * PieceCount(layout_) *
         (spec_.tokens - int64_t{spec_.first_block} * layout_.block_size());
}

TransferEvent ReceiveSession::Event(TransferEvent::Kind kind, absl::Status status) const {
  TransferEvent event;
  event.kind = kind;
  event.id = id();
  event.blocks_done = landed_;
  if (kind == TransferEvent::Kind::kReceived) event.manifest = manifest_;
  event.status = std::move(status);
  event.bytes = bytes_;
  event.busy_us = busy_.total_us();
  return event;
}

}  // namespace baton
