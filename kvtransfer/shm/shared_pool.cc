#include "kvtransfer/shm/shared_pool.h"

#include <unistd.h>

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/status_macros.h"

namespace baton {
namespace {

// Acquire fence: later reads and writes cannot move before it. ThreadSanitizer does not support
// fences and warns. This fence only orders reads of another process's memory.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
void AcquireFence() { std::atomic_thread_fence(std::memory_order_acquire); }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace

absl::StatusOr<LentBlocks> LentBlocks::Create(TransferPool& pool) {
  ASSIGN_OR_RETURN(LentFile file, LentFile::Create(pool));
  return LentBlocks(pool, std::move(file));
}

SharedPoolFrame LentBlocks::Describe() const {
  const KvPoolLayout& layout = pool_->layout();
  SharedPoolFrame frame{.num_blocks = layout.group(0).num_blocks()};
  for (int32_t group = 1; group < layout.groups(); ++group) {
    frame.window_num_blocks.push_back(layout.group(group).num_blocks());
  }
  return frame;
}

std::vector<uint32_t> LentBlocks::Checksums(const BlockDispatch& dispatch,
                                            BlockChecksums& checksums) const {
  const int32_t valid = dispatch.frame.valid_tokens;
  const LayerRange layers = dispatch.frame.layers;
  std::optional<PoolLease> lease =
      pool_->Acquire(PoolAccess::kRead, LeadingTokens(dispatch.blocks, valid), layers);
  CHECK(lease && *lease->Ready());  // always true for a pool with an export
  return checksums.Of(dispatch.blocks, valid, layers, lease->bytes());
}

SharedBlockFrame LentBlocks::Lend(const BlockDispatch& dispatch, BlockChecksums& checksums) {
  SharedBlockFrame frame{.block = dispatch.frame, .place = {}, .windows = {}};
  std::vector<int64_t>& lent = lent_to_[dispatch.frame.sender_transfer];
  for (int32_t group = 0; group < pool_->layout().groups(); ++group) {
    if (dispatch.blocks[group] == kNoBlock) continue;
    const int64_t number = file_.NumberOf(dispatch.blocks[group], group);
    ++loans_[number].transfers;
    lent.push_back(number);
  }
  file_.SetPlaces(dispatch.blocks, frame);
  if (!dispatch.frame.layers.all()) {
    frame.block.piece_crcs = Checksums(dispatch, checksums);
    return frame;
  }
  const int32_t valid = dispatch.frame.valid_tokens;
  Loan& loan = loans_[file_.NumberOf(dispatch.blocks[0], 0)];
  if (loan.valid_tokens != valid || loan.blocks != dispatch.blocks) {
    loan.blocks = dispatch.blocks;
    loan.valid_tokens = valid;
    loan.piece_crcs = Checksums(dispatch, checksums);
  }
  frame.block.piece_crcs = loan.piece_crcs;
  return frame;
}

void LentBlocks::Return(uint64_t sender_transfer) {
  const auto lent = lent_to_.find(sender_transfer);
  if (lent == lent_to_.end()) return;
  for (const int64_t number : lent->second) {
    const auto loan = loans_.find(number);
    if (--loan->second.transfers > 0) continue;
    loans_.erase(loan);
    // This happens before every later write to the block, because the engine learns of the end
    // under a lock.
    file_.EndLoan(number);
  }
  lent_to_.erase(lent);
}

absl::StatusOr<PeerPool> PeerPool::Map(const KvPoolLayout& ours, const KvGeometry& geometry,
                                       const SharedPoolFrame& told, int pool_file,
                                       int generations_file) {
  std::vector<int64_t> num_blocks = {told.num_blocks};
  num_blocks.insert(num_blocks.end(), told.window_num_blocks.begin(), told.window_num_blocks.end());
  return MapFile(ours, geometry, num_blocks, pool_file, generations_file);
}

absl::StatusOr<PeerPool> PeerPool::Map(const KvPoolLayout& ours, const KvGeometry& geometry,
                                       const SharedSlotsFrame& told, int slots_file,
                                       int generations_file) {
  const std::vector<int64_t> slots(static_cast<size_t>(ours.groups()), told.slots);
  ASSIGN_OR_RETURN(PeerPool mapped, MapFile(ours, {KvLayoutKind::kBlockMajor, geometry.block_size},
                                            slots, slots_file, generations_file));
  mapped.slots_ = true;
  return mapped;
}

absl::StatusOr<PeerPool> PeerPool::MapFile(const KvPoolLayout& ours, const KvGeometry& geometry,
                                           const std::vector<int64_t>& num_blocks, int pool_file,
                                           int generations_file) {
  if (std::ssize(num_blocks) != ours.groups()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("SharedPool names the blocks of %d KV groups, our pool has %d",
                        num_blocks.size(), ours.groups()));
  }
  ASSIGN_OR_RETURN(KvPoolLayout theirs,
                   ours.Recut(geometry.layout, geometry.block_size, num_blocks));
  // A sparse file costs the peer nothing, but mapping it costs us address space.
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  if (theirs.pool_bytes() > memory) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the sender's pool of %d blocks has %d bytes, this host has %d bytes of memory",
        theirs.total_blocks(), theirs.pool_bytes(), memory));
  }
  ASSIGN_OR_RETURN(SharedPageView pool,
                   SharedPageView::Map(pool_file, static_cast<size_t>(theirs.pool_bytes())));
  ASSIGN_OR_RETURN(
      SharedPageView generations,
      SharedPageView::Map(generations_file,
                          static_cast<size_t>(theirs.total_blocks()) * sizeof(uint64_t)));
  return PeerPool(std::move(theirs), std::move(pool), std::move(generations));
}

absl::StatusOr<PeerPool::Places> PeerPool::PlacesOf(const SharedBlockFrame& frame,
                                                    GroupSet groups) const {
  if (std::ssize(frame.windows) != groups.count() - 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "transfer %d block %d names %d window blocks, expected %d", frame.block.transfer_id,
        frame.block.block, frame.windows.size(), groups.count() - 1));
  }
  Places places = {frame.place};
  size_t next = 0;
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    if (!groups.Has(group)) continue;
    SharedPlace& place = places[static_cast<size_t>(group)];
    if (group > 0) place = frame.windows[next++];
    const int64_t limit = layout_.group(group).num_blocks();
    if (place.pool_block < 0 || place.pool_block >= limit) {
      return absl::OutOfRangeError(
          absl::StrFormat("block %d of KV group %d is outside the sender's pool of %d blocks",
                          place.pool_block, group, limit));
    }
  }
  return places;
}

absl::Status PeerPool::CheckGenerations(const SharedBlockFrame& frame, const Places& places,
                                        GroupSet groups) const {
  const auto* words = reinterpret_cast<const uint64_t*>(generations_.data());
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    if (!groups.Has(group)) continue;
    const SharedPlace& place = places[static_cast<size_t>(group)];
    const int64_t number = layout_.first_block(group) + place.pool_block;
    const uint64_t now = __atomic_load_n(words + number, __ATOMIC_RELAXED);
    if (now == place.generation) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "transfer %d block %d: expected generation %d of the sender's block %d, it has %d",
        frame.block.transfer_id, frame.block.block, place.generation, place.pool_block, now));
  }
  return absl::OkStatus();
}

// Bytes that the receiver does not need are only checksummed in place, not copied.
uint32_t PeerPool::CopyPiece(const Places& places, const Piece& piece, int32_t valid_tokens,
                             const PieceBytes& to, CopyStores stores) const {
  const SharedPlace& place = places[static_cast<size_t>(layout_.place(piece.layer).group)];
  const std::span from(
      pool_.data() + layout_.PieceOffset(piece.layer, piece.plane, place.pool_block),
      static_cast<size_t>(PieceValidBytes(layout_, piece, valid_tokens)));
  auto at = static_cast<size_t>(to.DroppedBytes(piece));
  uint32_t crc = Crc32c(from.first(at));
  for (size_t part = 0; part < to.parts().size(); ++part) {
    const std::span<std::byte> target = to.Part(piece, part);
    crc = CopyCrc32c(target.data(), from.subspan(at, target.size()), stores, crc);
    at += target.size();
  }
  return crc;
}

absl::Status PeerPool::Copy(const SharedBlockFrame& frame, const PieceBytes& to,
                            CopyStores stores) const {
  const GroupSet groups = to.groups();
  ASSIGN_OR_RETURN(const Places places, PlacesOf(frame, groups));
  RETURN_IF_ERROR(CheckGenerations(frame, places, groups));
  AcquireFence();
  absl::Status damage;
  auto theirs = frame.block.piece_crcs.begin();
  for (const Piece piece : to.pieces()) {
    CHECK(theirs != frame.block.piece_crcs.end());
    const uint32_t crc = CopyPiece(places, piece, frame.block.valid_tokens, to, stores);
    if (crc != *theirs) {
      damage = absl::DataLossError(absl::StrFormat(
          "transfer %d block %d %s: CRC32C %08x, the sender's is %08x", frame.block.transfer_id,
          frame.block.block, PieceName(layout_, piece), crc, *theirs));
      break;
    }
    ++theirs;
  }
  FinishStreaming();
  AcquireFence();
  // Checked first: a reused block explains a wrong checksum.
  RETURN_IF_ERROR(CheckGenerations(frame, places, groups));
  return damage;
}

}  // namespace baton
