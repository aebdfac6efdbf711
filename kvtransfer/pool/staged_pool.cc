#include "kvtransfer/pool/staged_pool.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "common/check.h"
#include "kvtransfer/pool/rank_runs.h"

namespace baton {

namespace {

constexpr int64_t kAlignment = 64;  // of each group's rows in a buffer
// Bytes of shared read buffers, and limits of their number. A receiver may take half of them.
constexpr int64_t kSharedBytes = 64 << 20;
constexpr int64_t kLeastShared = 4;
constexpr int64_t kMostShared = 64;

// Returns the layout of a staging buffer with room for `tokens` tokens.
KvPoolLayout BufferLayout(const KvPoolLayout& pool, int32_t tokens) {
  const std::vector<int64_t> one(static_cast<size_t>(pool.groups()), 1);
  absl::StatusOr<KvPoolLayout> layout =
      pool.Recut(KvLayoutKind::kBlockMajor, tokens, one, kAlignment);
  CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

// Returns the bytes of the checksums of block copies, which come before the buffers.
int64_t ChecksumBytes(const KvPoolLayout& layout) {
  const auto bytes = DeviceBlockCopies::Checksums(layout) * static_cast<int64_t>(sizeof(uint32_t));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::span<uint32_t> ChecksumsIn(std::span<std::byte> staging, const KvPoolLayout& layout) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(staging.data()) % alignof(uint32_t), 0u);
  return {reinterpret_cast<uint32_t*>(staging.data()),
          static_cast<size_t>(DeviceBlockCopies::Checksums(layout))};
}

}  // namespace

int64_t StagedPool::BufferBytes(const KvPoolLayout& layout) {
  return BufferLayout(layout, kMaxBlockSize).pool_bytes();
}

int64_t StagedPool::StagingBytes(const KvPoolLayout& layout, const Limits& limits, bool shared) {
  return ChecksumBytes(layout) +
         BufferBytes(layout) * (int64_t{shared ? 0 : limits.read_buffers} + limits.land_buffers);
}

int32_t StagedPool::SharedReadBuffers(const KvPoolLayout& layout) {
  return static_cast<int32_t>(
      std::clamp(kSharedBytes / layout.bytes_per_block(), kLeastShared, kMostShared));
}

KvPoolLayout StagedPool::SharedLayout(const KvPoolLayout& layout, const Limits& limits) {
  const std::vector<int64_t> slots(static_cast<size_t>(layout.groups()), limits.read_buffers);
  absl::StatusOr<KvPoolLayout> shared =
      layout.Recut(KvLayoutKind::kBlockMajor, layout.block_size(), slots);
  CHECK(shared.ok()) << shared.status();
  return *std::move(shared);
}

StagedPool::StagedPool(std::optional<KvPoolLayout> rank_layout, std::byte* address,
                       const KvPoolLayout& layout, PoolCopies& copies, std::span<std::byte> staging,
                       const Limits& limits, const SharedStaging& shared)
    : TransferPool(layout),
      rank_layout_(std::move(rank_layout)),
      address_(address),
      copies_(copies),
      read_buffers_(limits.read_buffers),
      block_copies_(address, this->layout(), rank_layout_.has_value() ? &*rank_layout_ : nullptr,
                    copies, ChecksumsIn(staging, layout)),
      shared_(shared) {
  CHECK(limits.read_buffers >= 1 && limits.land_buffers >= 1);
  const bool shares = shared.file >= 0;
  CHECK_GE(static_cast<int64_t>(staging.size()), StagingBytes(layout, limits, shares));
  if (shares) {
    slots_ = SharedLayout(layout, limits);
    CHECK_GE(static_cast<int64_t>(shared.memory.size()), slots_->pool_bytes());
  }
  staging = staging.subspan(static_cast<size_t>(ChecksumBytes(layout)));
  const auto bytes = static_cast<size_t>(BufferBytes(layout));
  for (int32_t i = 0; i < limits.read_buffers + limits.land_buffers; ++i) {
    Buffer& buffer = buffers_.emplace_back();
    if (shares && i < read_buffers_) {
      buffer.memory = shared.memory;
      buffer.slot = BlockId(i);
    } else {
      buffer.memory = staging.first(bytes);
      staging = staging.subspan(bytes);
    }
  }
  for (int32_t tokens = 1; tokens <= kMaxBlockSize; tokens *= 2) {
    layouts_.push_back(BufferLayout(layout, tokens));
  }
}

StagedPool::StagedPool(const KvPoolLayout& rank_layout, const KvPoolLayout& layout,
                       PoolCopies& copies, std::span<std::byte> staging, const Limits& limits,
                       const SharedStaging& shared)
    : StagedPool(rank_layout, nullptr, layout, copies, staging, limits, shared) {}

StagedPool::StagedPool(std::byte* address, const KvPoolLayout& layout, PoolCopies& copies,
                       std::span<std::byte> staging, const Limits& limits,
                       const SharedStaging& shared)
    : StagedPool(std::nullopt, address, layout, copies, staging, limits, shared) {}

StagedPool::~StagedPool() {
  while (!Settled()) sched_yield();
  for (const Buffer& buffer : buffers_) CHECK(!buffer.leased) << "a lease outlives its pool";
}

std::optional<PoolExport> StagedPool::exported() const {
  if (!slots_) return std::nullopt;
  return PoolExport{.file = shared_.file, .layout = &*slots_};
}

PieceBytes StagedPool::Staged(int32_t number, const LandingParts& parts, LayerRange layers) const {
  const Buffer& buffer = buffers_[static_cast<size_t>(number)];
  LandingParts staged;
  int32_t tokens = 0;
  for (const LandingPart& part : parts) {
    GroupBlocks blocks;
    for (int32_t group = 0; group < layout().groups(); ++group) {
      if (part.blocks[group] != kNoBlock) blocks.Set(group, buffer.slot);
    }
    staged.push_back({.blocks = blocks,
                      .block_token = tokens,
                      .payload_token = part.payload_token,
                      .tokens = part.tokens});
    tokens += part.tokens;
  }
  if (slots_ && number < read_buffers_) {
    CHECK(tokens >= 1 && tokens <= layout().block_size());
    return PieceBytes(buffer.memory.data(), *slots_, std::move(staged), layers);
  }
  CHECK(tokens >= 1 && tokens <= kMaxBlockSize);
  const auto size_log2 = std::bit_width(static_cast<uint32_t>(tokens - 1));
  return PieceBytes(buffer.memory.data(), layouts_[static_cast<size_t>(size_log2)],
                    std::move(staged), layers);
}

std::optional<PoolLease> StagedPool::Acquire(PoolAccess access, LandingParts parts,
                                             LayerRange layers) {
  const bool read = access == PoolAccess::kRead;
  const int32_t end = read ? read_buffers_ : static_cast<int32_t>(buffers_.size());
  int32_t free = read ? 0 : read_buffers_;
  while (free < end && (At(free).leased || !CopyEnded(At(free)))) ++free;
  if (free == end) return std::nullopt;
  Buffer& buffer = At(free);
  buffer.leased = true;
  buffer.stores = false;
  buffer.told = false;
  buffer.failed = absl::OkStatus();
  PieceBytes staged = Staged(free, parts, layers);
  buffer.runs.clear();
  if (rank_layout_.has_value()) {
    AppendRankRuns(*rank_layout_, parts, staged, buffer.runs);
    if (read) ClearPadding(staged);
  } else {
    AppendRuns(parts, layers, staged, buffer.runs);
  }
  if (read) Begin(buffer, PoolCopies::Direction::kFromPool);
  return PoolLease(this, free, std::move(staged));
}

void StagedPool::AppendRuns(const LandingParts& parts, LayerRange layers, const PieceBytes& staged,
                            std::vector<PoolCopies::Run>& runs) const {
  // `pool` only computes addresses; nothing reads through it.
  const PieceBytes pool(address_, layout(), parts, layers);
  for (const Piece piece : pool.pieces()) {
    for (size_t part = 0; part < pool.parts().size(); ++part) {
      const std::span<std::byte> from = pool.Part(piece, part);
      if (from.empty()) continue;
      const PoolCopies::Run run{.pool_offset = from.data() - address_,
                                .staging = staged.Part(piece, part).data(),
                                .bytes = static_cast<int64_t>(from.size())};
      PoolCopies::Run* const last = runs.empty() ? nullptr : &runs.back();
      if (last != nullptr && last->pool_offset + last->bytes == run.pool_offset &&
          last->staging + last->bytes == run.staging) {
        last->bytes += run.bytes;
      } else {
        runs.push_back(run);
      }
    }
  }
}

void StagedPool::Begin(Buffer& buffer, PoolCopies::Direction direction) {
  if (buffer.runs.empty()) return;  // no layer of the range belongs to a selected group
  absl::StatusOr<uint64_t> copy = copies_.Begin(direction, buffer.runs);
  if (copy.ok()) {
    buffer.copy = *copy;
    for (const PoolCopies::Run& run : buffer.runs) bytes_through_host_ += run.bytes * run.rows;
  } else {
    buffer.failed = copy.status();
  }
}

bool StagedPool::CopyEnded(Buffer& buffer) {
  if (!buffer.copy) return true;
  const absl::StatusOr<bool> ended = copies_.Ended(*buffer.copy);
  if (ended.ok() && !*ended) return false;
  buffer.copy.reset();
  buffer.failed = ended.status();
  if (!buffer.leased) KeepStoreError(buffer);
  return true;
}

// The lease may have been released without asking for the error.
void StagedPool::KeepStoreError(const Buffer& buffer) {
  if (buffer.stores && !buffer.told) store_error_.Update(buffer.failed);
}

void StagedPool::ReturnBuffer(int32_t buffer) {
  At(buffer).leased = false;
  if (!At(buffer).copy) KeepStoreError(At(buffer));
}

absl::StatusOr<bool> StagedPool::BufferReady(int32_t buffer) {
  if (!CopyEnded(At(buffer))) return false;
  if (!At(buffer).failed.ok()) {
    At(buffer).told = true;
    return At(buffer).failed;
  }
  return true;
}

void StagedPool::StoreBuffer(int32_t buffer) {
  CHECK(buffer >= read_buffers_ && At(buffer).leased && !At(buffer).copy);
  At(buffer).stores = true;
  Begin(At(buffer), PoolCopies::Direction::kToPool);
}

absl::Status StagedPool::TakeStoreError() {
  absl::Status error = std::exchange(store_error_, absl::OkStatus());
  error.Update(block_copies_.TakeStoreError());
  return error;
}

bool StagedPool::Settled() {
  bool settled = block_copies_.Settled();
  for (Buffer& buffer : buffers_) settled &= buffer.leased || CopyEnded(buffer);
  return settled;
}

}  // namespace baton
