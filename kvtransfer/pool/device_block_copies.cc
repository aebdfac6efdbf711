#include "kvtransfer/pool/device_block_copies.h"

#include <algorithm>

#include "common/check.h"
#include "kvtransfer/pool/piece_bytes.h"
#include "kvtransfer/pool/rank_runs.h"

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
                                     const KvPoolLayout* rank_layout, PoolCopies& copies,
                                     std::span<uint32_t> checksums)
    : pool_(pool), layout_(layout), rank_layout_(rank_layout), copies_(copies) {
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

void DeviceBlockCopies::ListRuns(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers,
                                 std::byte* memory) {
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
}

void DeviceBlockCopies::ListRankRuns(const GroupBlocks& blocks, int32_t valid_tokens,
                                     LayerRange layers, std::byte* memory) {
  runs_.clear();
  pieces_.clear();
  padding_.clear();
  int64_t at = 0;
  for (const Piece piece : Pieces(layout_, blocks.groups(), layers)) {
    AppendRankRuns(layout_, *rank_layout_, piece, blocks[layout_.place(piece.layer).group],
                   /*first_token=*/0, valid_tokens, memory + at, runs_);
    const std::optional<ByteRows> padding = PaddingOf(layout_, piece, at, valid_tokens);
    if (padding) padding_.push_back(*padding);
    const int64_t bytes = PieceValidBytes(layout_, piece, valid_tokens);
    pieces_.push_back({.from = at, .to = at, .bytes = bytes});
    at += bytes;
  }
}

std::optional<DeviceBlockCopy> DeviceBlockCopies::Begin(PoolCopies::Direction direction,
                                                        const GroupBlocks& blocks,
                                                        int32_t valid_tokens, LayerRange layers,
                                                        std::byte* memory,
                                                        std::shared_ptr<const void> keep) {
  Copy* const free = Free();
  if (free == nullptr) return std::nullopt;
  const bool divided = rank_layout_ != nullptr;
  if (divided) {
    ListRankRuns(blocks, valid_tokens, layers, memory);
  } else {
    ListRuns(blocks, valid_tokens, layers, memory);
  }
  *free = {.checksums = free->checksums,
           .pieces = divided ? pieces_.size() : runs_.size(),
           .owned = true,
           .stores = direction == PoolCopies::Direction::kToPool};
  DeviceBlockCopy begun(this, static_cast<int32_t>(free - all_.data()));
  if (runs_.empty()) return begun;  // no layer of the range belongs to a selected group
  const absl::StatusOr<uint64_t> copy =
      divided ? copies_.BeginOnRanks({.direction = direction,
                                      .memory = memory,
                                      .runs = runs_,
                                      .pieces = pieces_,
                                      .padding = padding_},
                                     free->checksums.data())
              : copies_.BeginOnDevice(direction, runs_, free->checksums.data());
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
