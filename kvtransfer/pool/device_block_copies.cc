#include "kvtransfer/pool/device_block_copies.h"

#include <algorithm>

#include "common/check.h"
#include "kvtransfer/pool/piece_bytes.h"

namespace baton {

DeviceBlockCopy& DeviceBlockCopy::operator=(DeviceBlockCopy&& other) noexcept {
  std::swap(copies_, other.copies_);
  std::swap(number_, other.number_);
  return *this;
}

DeviceBlockCopy::~DeviceBlockCopy() {
  if (copies_ != nullptr) copies_->Release(number_);
}

absl::StatusOr<bool> DeviceBlockCopy::Ready() {
  DeviceBlockCopies::Copy& copy = copies_->At(number_);
  if (!copies_->Ended(copy)) return false;
  copy.told = true;
  if (!copy.failed.ok()) return copy.failed;
  return true;
}

std::span<const uint32_t> DeviceBlockCopy::checksums() const {
  const DeviceBlockCopies::Copy& copy = copies_->At(number_);
  return copy.checksums.first(copy.pieces);
}

void DeviceBlockCopy::Abandon() { copies_->At(number_).abandoned = true; }

int32_t DeviceBlockCopies::CopiesFor(const KvPoolLayout& layout) {
  return std::clamp(kMostRuns / PieceCount(layout), 2, kMostCopies);
}

DeviceBlockCopies::DeviceBlockCopies(std::byte* pool, const KvPoolLayout& layout,
                                     PoolCopies& copies, std::span<uint32_t> checksums)
    : pool_(pool), layout_(layout), copies_(copies) {
  CHECK_GE(static_cast<int64_t>(checksums.size()), Checksums(layout));
  all_.resize(static_cast<size_t>(CopiesFor(layout)));
  const auto pieces = static_cast<size_t>(PieceCount(layout));
  for (size_t i = 0; i < all_.size(); ++i) {
    all_[i].checksums = checksums.subspan(i * pieces, pieces);
  }
}

DeviceBlockCopies::~DeviceBlockCopies() {
  for (const Copy& copy : all_) CHECK(!copy.owned && !copy.running) << "a copy outlives its pool";
}

std::optional<DeviceBlockCopy> DeviceBlockCopies::Begin(PoolCopies::Direction direction,
                                                        const GroupBlocks& blocks,
                                                        int32_t valid_tokens, LayerRange layers,
                                                        std::byte* memory,
                                                        std::shared_ptr<const void> keep) {
  Copy* const free = Free();
  if (free == nullptr) return std::nullopt;
  // `pool` only computes addresses; nothing reads through it.
  const PieceBytes pool(pool_, layout_, LeadingTokens(blocks, valid_tokens), layers);
  runs_.clear();
  int64_t at = 0;
  for (const Piece piece : pool.pieces()) {
    const std::span<std::byte> in_pool = pool.Part(piece, 0);
    const auto bytes = static_cast<int64_t>(in_pool.size());
    runs_.push_back(
        {.pool_offset = in_pool.data() - pool_, .staging = memory + at, .bytes = bytes});
    at += bytes;
  }
  *free = {.checksums = free->checksums,
           .pieces = runs_.size(),
           .owned = true,
           .stores = direction == PoolCopies::Direction::kToPool};
  DeviceBlockCopy begun(this, static_cast<int32_t>(free - all_.data()));
  if (runs_.empty()) return begun;  // no layer of the range belongs to a selected group
  const absl::StatusOr<uint64_t> copy =
      copies_.BeginOnDevice(direction, runs_, free->checksums.data());
  if (copy.ok()) {
    free->running = *copy;
    free->keep = std::move(keep);
  } else {
    free->failed = copy.status();
  }
  return begun;
}

DeviceBlockCopies::Copy* DeviceBlockCopies::Free() {
  for (Copy& copy : all_) {
    if (!copy.owned && Ended(copy)) return &copy;
  }
  return nullptr;
}

bool DeviceBlockCopies::Ended(Copy& copy) {
  if (!copy.running) return true;
  const absl::StatusOr<bool> ended = copies_.Ended(*copy.running);
  if (ended.ok() && !*ended) return false;
  copy.running.reset();
  copy.keep.reset();
  copy.failed = ended.status();
  if (!copy.owned || copy.abandoned) KeepStoreError(copy);
  return true;
}

void DeviceBlockCopies::KeepStoreError(const Copy& copy) {
  if (copy.stores && !copy.told) store_error_.Update(copy.failed);
}

void DeviceBlockCopies::Release(int32_t number) {
  Copy& copy = At(number);
  copy.owned = false;
  if (!copy.running) KeepStoreError(copy);
}

bool DeviceBlockCopies::Settled() {
  bool settled = true;
  for (Copy& copy : all_) settled &= (copy.owned && !copy.abandoned) || Ended(copy);
  return settled;
}

}  // namespace baton
