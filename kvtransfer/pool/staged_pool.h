// A pool whose memory the host cannot read: lends staging buffers, and copies between them and the
// pool by something that runs by itself (PoolCopies; on CUDA a copy on a stream and its event).
//
// Every buffer holds the payload of one block of any size that a peer may have (kMaxBlockSize
// tokens of all layers of all KV groups). Buffers for reading and for landing are counted apart:
// were they not, two workers that send to each other could both wait for a buffer to land in, with
// all of theirs full of what the other cannot take.
//
// Invariant: a buffer whose lease was let go while its copy ran is free again only when that copy
// has ended.
//
// Thread safety: as TransferPool; copies run wherever PoolCopies has them run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

// Copies between a pool and staging memory. A copy that has begun ends, whatever becomes of its
// lease.
class PoolCopies {
 public:
  enum class Direction : uint8_t { kFromPool, kToPool };
  // Of the pool, from its beginning, and of staging memory.
  struct Run {
    int64_t pool_offset = 0;
    std::byte* staging = nullptr;
    int64_t bytes = 0;
  };

  virtual ~PoolCopies() = default;
  // Begins a copy; never blocks. `runs` need not outlive the call. Returns what to ask Ended for.
  virtual absl::StatusOr<uint64_t> Begin(Direction direction, std::span<const Run> runs) = 0;
  // Whether the copy has ended; an error: it has, and failed. Not to be asked again after either.
  virtual absl::StatusOr<bool> Ended(uint64_t copy) = 0;
};

class StagedPool final : public TransferPool {
 public:
  struct Limits {
    int32_t read_buffers = 4;
    int32_t land_buffers = 4;
  };
  // Of one buffer.
  static int64_t BufferBytes(const KvPoolLayout& layout);
  // What `staging` must have.
  static int64_t StagingBytes(const KvPoolLayout& layout, const Limits& limits) {
    return BufferBytes(layout) * (int64_t{limits.read_buffers} + limits.land_buffers);
  }

  // `address` is where the device has the pool; this never dereferences it. `copies` and `staging`
  // (host memory; pinned, for a device that wants it) outlive this. REQUIRES: limits of at least 1,
  // and StagingBytes of staging.
  StagedPool(std::byte* address, const KvPoolLayout& layout, PoolCopies& copies,
             std::span<std::byte> staging, const Limits& limits);
  // Waits for the copies that are under way.
  ~StagedPool() override;

  PoolMemory memory() const override { return PoolMemory::kDevice; }
  std::optional<PoolLease> Acquire(PoolAccess access, LandingParts parts,
                                   LayerRange layers) override;
  bool Settled() override;
  std::optional<PoolExport> exported() const override { return std::nullopt; }
  std::byte* AddressForCopyEngine() const override { return address_; }

 private:
  struct Buffer {
    std::span<std::byte> memory;
    bool leased = false;
    std::optional<uint64_t> copy;  // under way
    absl::Status failed;           // of this lease's copy
    std::vector<PoolCopies::Run> runs;
  };

  absl::StatusOr<bool> BufferReady(int32_t buffer) override;
  void StoreBuffer(int32_t buffer) override;
  void ReturnBuffer(int32_t buffer) override { At(buffer).leased = false; }

  Buffer& At(int32_t buffer) { return buffers_[static_cast<size_t>(buffer)]; }
  // Whether it has none under way, after asking.
  bool CopyEnded(Buffer& buffer);
  void Begin(Buffer& buffer, PoolCopies::Direction direction);
  // Where the tokens of `parts` lie in a staging buffer: side by side.
  PieceBytes Staged(Buffer& buffer, const LandingParts& parts, LayerRange layers) const;

  std::byte* const address_;
  PoolCopies& copies_;
  const int32_t read_buffers_;
  std::vector<Buffer> buffers_;        // those for reading first
  std::vector<KvPoolLayout> layouts_;  // of a staging buffer, by log2 of the tokens it has room for
};

}  // namespace baton
