#include "kvtransfer/shm/staged_shm_connection.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace baton {

StagedShmConnection::StagedShmConnection(ConnectionParts parts, LentFile& slots)
    : ShmConnection(std::move(parts), slots),
      slots_(slots),
      most_(std::max<size_t>(1, static_cast<size_t>(slots.layout().group(0).num_blocks()) / 2)) {}

Frame StagedShmConnection::Describe() const {
  return SharedSlotsFrame{static_cast<int32_t>(slots_.layout().group(0).num_blocks())};
}

void StagedShmConnection::BeginCopies() {
  // All but the last one have begun. Few run ahead, so that a more urgent transfer soon has its
  // turn.
  constexpr size_t kMostAhead = 4;
  while (copying_.empty() ||
         (copying_.back().lease.Begin(node_.pool()) && copying_.size() < kMostAhead)) {
    if (!HasRoom()) return;
    std::optional<BlockDispatch> next = node_.sender().NextBlock(peer());
    if (!next) return;
    LeaseRequest lease(PoolAccess::kRead, LeadingTokens(next->blocks, next->frame.valid_tokens),
                       next->frame.layers);
    copying_.push_back({*std::move(next), std::move(lease)});
  }
}

absl::Status StagedShmConnection::QueueBlocks(int64_t now_us) {
  const int64_t most = std::min(kGatherBlockBytes, left_in_turn());
  for (int64_t looked_at = 0; looked_at < most && writer_.queued_bytes() < kGatherFrameBytes;) {
    BeginCopies();
    if (copying_.empty()) break;
    const absl::StatusOr<bool> ready = copying_.front().lease.Ask(node_.pool());
    if (ready.ok() && !*ready) break;
    Copying next = std::move(copying_.front());
    copying_.pop_front();
    if (!ready.ok()) {
      node_.sender().OnBlockUnreadable(next.dispatch, ready.status());
      continue;
    }
    looked_at += next.dispatch.frame.payload_bytes;
    RETURN_IF_ERROR(Lend(std::move(next), now_us));
  }
  return absl::OkStatus();
}

absl::Status StagedShmConnection::Lend(Copying copied, int64_t now_us) {
  const BlockDispatch& dispatch = copied.dispatch;
  LentSlot slot(slots_, copied.lease.Take());
  SharedBlockFrame frame{.block = dispatch.frame, .place = {}, .windows = {}};
  frame.block.piece_crcs = node_.checksums().Of(dispatch.blocks, dispatch.frame.valid_tokens,
                                                dispatch.frame.layers, slot.bytes());
  slots_.SetPlaces(slot.blocks(), frame);
  RETURN_IF_ERROR(Send(frame));
  node_.sender().OnBlockSent(dispatch, now_us);
  node_.moved().Sent(KvMedium::kShm, dispatch.frame.payload_bytes);
  Moved(dispatch.frame.payload_bytes);  // computing checksums took time of this turn
  lent_.push_back({std::move(copied.dispatch), std::move(slot)});
  return absl::OkStatus();
}

absl::Status StagedShmConnection::OnPayloadAnswer(Frame frame, int64_t now_us) {
  const auto* const taken = std::get_if<SharedTakenFrame>(&frame);
  if (taken == nullptr) return ShmConnection::OnPayloadAnswer(std::move(frame), now_us);
  if (taken->blocks <= taken_ || taken->blocks - taken_ > lent_.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("SharedTaken of %d blocks; %d were taken before, and %d are lent",
                        taken->blocks, taken_, lent_.size()));
  }
  for (; taken_ < taken->blocks; ++taken_) lent_.pop_front();
  return absl::OkStatus();
}

PoolWait StagedShmConnection::waits_for_pool() const {
  if (!opened_by_us()) return ShmConnection::waits_for_pool();
  // A full writer waits for the socket first.
  if (copying_.empty() || writer_.queued_bytes() >= kGatherFrameBytes) return PoolWait::kNothing;
  return copying_.front().lease.waits_for();
}

void StagedShmConnection::ReleaseEndedTransfers() {
  ShmConnection::ReleaseEndedTransfers();
  std::erase_if(copying_, [this](const Copying& copying) {
    return !node_.sender().IsLive(copying.dispatch);
  });
  for (Lent& lent : lent_) {
    if (!node_.sender().IsLive(lent.dispatch)) lent.slot.reset();
  }
}

}  // namespace baton
