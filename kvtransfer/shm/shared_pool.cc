#include "kvtransfer/shm/shared_pool.h"

#include <unistd.h>

#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/status_macros.h"

namespace baton {
namespace {

// Neither reads nor writes move over it upwards. ThreadSanitizer does not follow fences, and warns;
// what this one orders are reads of another process's memory.
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
  const std::optional<PoolExport> exported = pool.exported();
  if (!exported) {
    return absl::InvalidArgumentError("the pool has no export: other processes cannot map it");
  }
  const size_t bytes = static_cast<size_t>(pool.layout().num_blocks()) * sizeof(uint64_t);
  ASSIGN_OR_RETURN(SharedPageBuffer generations,
                   SharedPageBuffer::Allocate(bytes, "block generations"));
  return LentBlocks(pool, exported->file, std::move(generations));
}

uint64_t& LentBlocks::Generation(BlockId block) {
  return reinterpret_cast<uint64_t*>(generations_.data())[block.value()];
}

std::vector<uint32_t> LentBlocks::Checksums(const BlockDispatch& dispatch,
                                            BlockChecksums& checksums) const {
  const int32_t valid = dispatch.frame.valid_tokens;
  const LayerRange layers = dispatch.frame.layers;
  std::optional<PoolLease> lease =
      pool_->Acquire(PoolAccess::kRead, LeadingTokens(dispatch.block, valid), layers);
  CHECK(lease && *lease->Ready());  // the pool has an export
  return checksums.Of(dispatch.block, valid, layers, lease->bytes());
}

SharedBlockFrame LentBlocks::Lend(const BlockDispatch& dispatch, BlockChecksums& checksums) {
  const int32_t valid = dispatch.frame.valid_tokens;
  Loan& loan = loans_[dispatch.block];
  ++loan.transfers;
  lent_to_[dispatch.frame.sender_transfer].push_back(dispatch.block);
  SharedBlockFrame frame{.block = dispatch.frame,
                         .pool_block = dispatch.block.value(),
                         .generation = Generation(dispatch.block)};
  if (!dispatch.frame.layers.all()) {
    frame.block.piece_crcs = Checksums(dispatch, checksums);
    return frame;
  }
  if (loan.valid_tokens != valid) {
    loan.valid_tokens = valid;
    loan.piece_crcs = Checksums(dispatch, checksums);
  }
  frame.block.piece_crcs = loan.piece_crcs;
  return frame;
}

void LentBlocks::Return(uint64_t sender_transfer) {
  const auto lent = lent_to_.find(sender_transfer);
  if (lent == lent_to_.end()) return;
  for (const BlockId block : lent->second) {
    const auto loan = loans_.find(block);
    if (--loan->second.transfers > 0) continue;
    loans_.erase(loan);
    // Ordered before every later write to the block: the engine learns of the end under a lock.
    std::atomic_ref(Generation(block)).fetch_add(1, std::memory_order_seq_cst);
  }
  lent_to_.erase(lent);
}

absl::StatusOr<PeerPool> PeerPool::Map(const KvLayout& ours, const KvGeometry& geometry,
                                       int64_t num_blocks, int pool_file, int generations_file) {
  ASSIGN_OR_RETURN(const KvLayout theirs, KvLayout::Create(ours.group(), geometry.layout,
                                                           geometry.block_size, num_blocks));
  // A sparse file costs its owner nothing, but each mapping costs us address space.
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  if (theirs.pool_bytes() > memory) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the sender's pool of %d blocks has %d bytes, this host %d", num_blocks,
                        theirs.pool_bytes(), memory));
  }
  ASSIGN_OR_RETURN(SharedPageView pool,
                   SharedPageView::Map(pool_file, static_cast<size_t>(theirs.pool_bytes())));
  ASSIGN_OR_RETURN(
      SharedPageView generations,
      SharedPageView::Map(generations_file, static_cast<size_t>(num_blocks) * sizeof(uint64_t)));
  return PeerPool(theirs, std::move(pool), std::move(generations));
}

absl::Status PeerPool::CheckGeneration(const SharedBlockFrame& frame) const {
  const auto* words = reinterpret_cast<const uint64_t*>(generations_.data());
  const uint64_t now = __atomic_load_n(words + frame.pool_block, __ATOMIC_RELAXED);
  if (now == frame.generation) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "transfer %d block %d: generation %d of the sender's block %d is over, it is at %d",
      frame.block.transfer_id, frame.block.block, frame.generation, frame.pool_block, now));
}

// The bytes that are not wanted are summed where they lie: nothing is stored of them.
uint32_t PeerPool::CopyPiece(const SharedBlockFrame& frame, int32_t piece, size_t bytes,
                             const PieceBytes& to, CopyStores stores) const {
  const int32_t number = to.first_piece() + piece;
  const std::span from(
      pool_.data() + layout_.PieceOffset(number / 2, number % 2 == 1, frame.pool_block), bytes);
  auto at = static_cast<size_t>(PieceValidBytes(layout_, to.parts().front().payload_token));
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
  if (frame.pool_block < 0 || frame.pool_block >= layout_.num_blocks()) {
    return absl::OutOfRangeError(absl::StrFormat("block %d is outside the sender's pool of %d",
                                                 frame.pool_block, layout_.num_blocks()));
  }
  const auto bytes = static_cast<size_t>(PieceValidBytes(layout_, frame.block.valid_tokens));
  CHECK_EQ(frame.block.piece_crcs.size(), static_cast<size_t>(to.pieces()));
  RETURN_IF_ERROR(CheckGeneration(frame));
  AcquireFence();
  absl::Status damage;
  int32_t piece = 0;
  for (const uint32_t theirs : frame.block.piece_crcs) {
    const uint32_t crc = CopyPiece(frame, piece, bytes, to, stores);
    if (crc != theirs) {
      damage = absl::DataLossError(absl::StrFormat(
          "transfer %d block %d %s: CRC32C %08x, the sender's is %08x", frame.block.transfer_id,
          frame.block.block, PieceName(to.first_piece() + piece), crc, theirs));
      break;
    }
    ++piece;
  }
  FinishStreaming();
  AcquireFence();
  // Told first: a block that was reused explains why it does not verify.
  RETURN_IF_ERROR(CheckGeneration(frame));
  return damage;
}

}  // namespace baton
