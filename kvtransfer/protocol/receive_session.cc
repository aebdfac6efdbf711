#include "kvtransfer/protocol/receive_session.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "kvtransfer/protocol/transfer_deadline.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {
namespace {

// Bytes requested ahead. Large enough that the sender never waits for a Pull, small enough that
// transfers share a connection fairly.
constexpr int64_t kWindowBytes = 8 << 20;

// Returns the pull window as a number of blocks of `block_bytes` bytes.
int32_t PullWindow(int64_t block_bytes) {
  return static_cast<int32_t>(std::clamp<int64_t>(kWindowBytes / block_bytes, 4, 256));
}

MovedTokens MovedOf(const KvPoolLayout& layout, const ReceiveSpec& spec) {
  return MovedTokens(spec.first_block, spec.window_first_blocks, spec.tokens, layout.block_size(),
                     WindowSizesOf(layout));
}

absl::Status CheckNamedOnce(const KvPoolLayout& layout, std::span<const BlockId> rows) {
  absl::flat_hash_set<int64_t> seen;
  for (size_t at = 0; at < rows.size(); ++at) {
    if (rows[at] == kNoBlock) continue;
    const auto group = static_cast<int32_t>(at % static_cast<size_t>(layout.groups()));
    if (seen.insert(layout.first_block(group) + rows[at].value()).second) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("block %d is named twice%s", rows[at].value(),
                        layout.groups() == 1 ? "" : absl::StrFormat(", of KV group %d", group)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReceiveSpec(const KvPoolLayout& layout, const ReceiveSpec& spec) {
  if (absl::Status status = CheckTimeout(spec.timeout_ms); !status.ok()) return status;
  if (spec.tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tokens %d is below the minimum of 1", spec.tokens));
  }
  const int64_t whole = BlocksForTokens(layout.block_size(), spec.tokens);
  const auto count = static_cast<int64_t>(spec.blocks.size()) / layout.groups();
  const int64_t named = int64_t{spec.first_block} + count;
  if (spec.first_block < 0 || named != whole) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "first_block %d and %d blocks end at %d, but %d tokens of block size %d fill %d blocks",
        spec.first_block, count, named, spec.tokens, layout.block_size(), whole));
  }
  RETURN_IF_ERROR(CheckWindowBlocks("receive", spec.window_first_blocks, layout.groups(),
                                    spec.first_block, static_cast<int32_t>(whole)));
  RETURN_IF_ERROR(CheckRows(layout, spec.blocks, MovedOf(layout, spec), spec.first_block));
  return CheckNamedOnce(layout, spec.blocks);
}

ReceiveSession::ReceiveSession(const KvPoolLayout& layout, ReceiveSpec spec, uint64_t serial,
                               int64_t now_us)
    : layout_(layout),
      spec_(std::move(spec)),
      moved_(MovedOf(layout, spec_)),
      serial_(serial),
      deadline_us_(DeadlineUs(now_us, spec_.timeout_ms)) {}

absl::Status ReceiveSession::OnAnnounce(PeerId peer, const SenderLink& link,
                                        const AnnounceFrame& frame) {
  if (peer_ && (*peer_ != peer || sender_transfer_ != frame.sender_transfer)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("transfer %d already has a sender (its transfer %d, not %d)", id(),
                        sender_transfer_, frame.sender_transfer));
  }
  if (!peer_) {
    link_ = link;
    theirs_ = BlocksHolding(first_token(), spec_.tokens, link.block_size);
    window_ = PullWindow(BlockValidBytes(layout_, link.block_size));
    order_ = PullOrder(theirs_.count, layout_.layers());
  }
  peer_ = peer;
  sender_transfer_ = frame.sender_transfer;
  if (layout_.groups() > 1 && link_.block_size < layout_.block_size()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the sender has blocks of %d tokens, ours have %d: a model with several KV groups needs a "
        "sender with blocks of at least our size",
        link_.block_size, layout_.block_size()));
  }
  if (frame.first_block != theirs_.first || frame.block_count != theirs_.count ||
      frame.tokens != spec_.tokens) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "announced first_block %d, block_count %d, tokens %d; expected %d, %d, %d of block size %d",
        frame.first_block, frame.block_count, frame.tokens, theirs_.first, theirs_.count,
        spec_.tokens, link_.block_size));
  }
  if (frame.window_first_blocks != spec_.window_first_blocks) {
    return absl::InvalidArgumentError(
        absl::StrFormat("announced window_first_blocks [%s], expected [%s]",
                        absl::StrJoin(frame.window_first_blocks, ", "),
                        absl::StrJoin(spec_.window_first_blocks, ", ")));
  }
  RETURN_IF_ERROR(CheckProgress(frame));
  announced_ = {.blocks = frame.available, .layers = frame.layers};
  final_ = frame.final;
  if (frame.final) manifest_ = frame.manifest;
  return absl::OkStatus();
}

absl::Status ReceiveSession::CheckProgress(const AnnounceFrame& frame) const {
  if (final_) return absl::InvalidArgumentError("announced again after the final announcement");
  if (frame.available < announced_.blocks || frame.available > theirs_.count) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "available %d is outside [%d, %d]", frame.available, announced_.blocks, theirs_.count));
  }
  if (frame.final && frame.available != theirs_.count && !spec_.may_end_early) {
    return absl::InvalidArgumentError(
        absl::StrFormat("final announcement with %d of %d blocks", frame.available, theirs_.count));
  }
  const bool all = frame.available == theirs_.count;
  if (frame.layers > layout_.layers() || (frame.layers > 0 && (all || spec_.may_end_early))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d layers announced of the blocks after the first %d of %d%s",
                        frame.layers, frame.available, theirs_.count,
                        spec_.may_end_early ? ", and the transfer may end early" : ""));
  }
  // Once layers were announced, they apply to all remaining blocks.
  if (announced_.layers > 0 && !all &&
      (frame.available != announced_.blocks || frame.layers < announced_.layers)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "announced %d blocks and %d layers of the rest; the announcement before had %d and %d",
        frame.available, frame.layers, announced_.blocks, announced_.layers));
  }
  return absl::OkStatus();
}

absl::StatusOr<LandingParts> ReceiveSession::OnBlock(const BlockFrame& frame) const {
  if (order_.empty()) {
    return absl::OutOfRangeError(
        absl::StrFormat("received block %d, but no block was requested", frame.block));
  }
  const BlockPart next = order_.Front();
  if (frame.block != theirs_.first + next.block || frame.layers != next.layers) {
    return absl::OutOfRangeError(
        absl::StrFormat("received block %d layers [%d, +%d), expected block %d layers [%d, +%d)",
                        frame.block, frame.layers.first, frame.layers.count,
                        theirs_.first + next.block, next.layers.first, next.layers.count));
  }
  const int32_t valid = ValidTokens(link_.block_size, spec_.tokens, frame.block);
  if (frame.valid_tokens != valid) {
    return absl::InvalidArgumentError(absl::StrFormat("block %d has valid_tokens %d, expected %d",
                                                      frame.block, frame.valid_tokens, valid));
  }
  const GroupSet groups = moved_.GroupsOf(frame.block, link_.block_size);
  const int64_t bytes = BlockValidBytes(layout_, valid, frame.layers, groups);
  const int32_t pieces = PieceCount(layout_, frame.layers, groups);
  if (frame.payload_bytes != bytes || frame.piece_crcs.size() != static_cast<size_t>(pieces)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("block %d has %d bytes in %d pieces, expected %d in %d", frame.block,
                        frame.payload_bytes, frame.piece_crcs.size(), bytes, pieces));
  }
  return PlaceTokens(frame.block * link_.block_size, valid, static_cast<int32_t>(first_token()),
                     layout_.block_size(), layout_.groups(), spec_.blocks, groups);
}

bool ReceiveSession::OnBlockLanded(int64_t bytes, int64_t now_us) {
  const bool whole = order_.Pop();
  landed_ += whole ? 1 : 0;
  landed_us_ = now_us;
  bytes_ += bytes;
  busy_.Touch(now_us, order_.empty());
  return whole;
}

std::optional<PullFrame> ReceiveSession::NextPull(int64_t now_us) {
  if (link_.pulls == PullMode::kImplied) {
    while (const std::optional<BlockRun> run = order_.Next(announced_)) {
      order_.Ask(*run);
      busy_.Start(now_us);
    }
    return std::nullopt;
  }
  const std::optional<BlockRun> run = order_.Next(announced_, landed_ + window_);
  if (!run) return std::nullopt;
  // Asks for at least half a window at a time, unless fewer blocks are left.
  if (run->layers.all() && run->first + run->count < announced_.blocks &&
      run->count < window_ / 2) {
    return std::nullopt;
  }
  order_.Ask(*run);
  busy_.Start(now_us);
  return PullFrame{.transfer_id = id(),
                   .sender_transfer = sender_transfer_,
                   .first = theirs_.first + run->first,
                   .count = run->count,
                   .layers = run->layers};
}

DoneFrame ReceiveSession::MakeDone(int64_t now_us) const {
  return {.transfer_id = id(),
          .sender_transfer = sender_transfer_,
          .landed_us = link_.shares_clock ? std::max(now_us, landed_us_) : 0};
}

int64_t ReceiveSession::payload_bytes() const {
  int64_t bytes = 0;
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    const int32_t begin = moved_.begin(group) / link_.block_size * link_.block_size;
    if (moved_.begin(group) >= spec_.tokens) continue;
    GroupSet one;
    one.Add(group);
    bytes += BlockValidBytes(layout_, spec_.tokens - begin, {}, one);
  }
  return bytes;
}

int32_t ReceiveSession::BlocksDone() const {
  if (landed_ == 0) return 0;
  const int64_t end = int64_t{theirs_.first + landed_} * link_.block_size;
  if (end >= spec_.tokens) return block_count();
  return std::max(0, static_cast<int32_t>(end / layout_.block_size()) - spec_.first_block);
}

TransferEvent ReceiveSession::Event(TransferEvent::Kind kind, absl::Status status) const {
  TransferEvent event;
  event.kind = kind;
  event.id = id();
  event.blocks_done = BlocksDone();
  if (kind == TransferEvent::Kind::kReceived) event.manifest = manifest_;
  event.status = std::move(status);
  event.bytes = bytes_;
  event.busy_us = busy_.total_us();
  return event;
}

}  // namespace baton
