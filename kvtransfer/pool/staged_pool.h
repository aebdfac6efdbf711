// Pool with memory that the host cannot read. It lends staging buffers, and PoolCopies moves bytes
// between them and the pool asynchronously (with CUDA: a copy on a stream and its event).
//
// Every buffer has room for the payload of one block of any size that a peer may have:
// kMaxBlockSize tokens of all layers of all KV groups. Read buffers may instead lie in a file that
// other processes map (exported). Then each of them is a slot for one block of this pool.
//
// Buffers for reading and for landing have separate quotas. With one quota, two workers that send
// to each other could deadlock. Each would wait for a buffer to land in, while data that the other
// cannot accept fills all its buffers.
//
// The pool may be divided: each rank of a tensor-parallel group has the rows of its KV heads on its
// own device (rank_runs.h). Staging buffers always have the rows of the whole model.
//
// Transports that move device memory use DeviceBlockCopies instead of leases, unless the pool is
// divided and its ranks cannot reach the first one's memory.
//
// Invariant: if a lease is released while its copy runs, its buffer becomes free only when that
// copy has ended. If that copy fails, and stores into the pool, its error is kept (TakeStoreError).
//
// Thread safety: as TransferPool; PoolCopies decides where copies run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/pool/device_block_copies.h"
#include "kvtransfer/pool/pool_copies.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

// Memory of read buffers that other processes can map.
struct SharedStaging {
  std::span<std::byte> memory;
  int file = -1;  // with this memory from offset 0 on; the caller keeps it. -1: not shared
};

class StagedPool final : public TransferPool {
 public:
  struct Limits {
    int32_t read_buffers = 4;
    int32_t land_buffers = 4;
  };
  // Bytes of one staging buffer.
  static int64_t BufferBytes(const KvPoolLayout& layout);
  // Bytes that `staging` must have. `shared`: without the read buffers.
  static int64_t StagingBytes(const KvPoolLayout& layout, const Limits& limits,
                              bool shared = false);
  // Number of shared read buffers with which a sender does not wait for its receivers.
  static int32_t SharedReadBuffers(const KvPoolLayout& layout);
  // Layout of shared read buffers: buffer i is block i of each KV group.
  static KvPoolLayout SharedLayout(const KvPoolLayout& layout, const Limits& limits);

  // `address` is the pool's address on the device; this class never dereferences it. `copies`,
  // `staging` and `shared` outlive this. They are host memory, pinned if the device needs that.
  // REQUIRES: limits of at least 1, StagingBytes() bytes of staging, aligned to 4, and the
  // SharedLayout's bytes of shared memory, if there is any.
  StagedPool(std::byte* address, const KvPoolLayout& layout, PoolCopies& copies,
             std::span<std::byte> staging, const Limits& limits, const SharedStaging& shared = {});
  // Same for a divided pool. `rank_layout`: of each rank's part.
  StagedPool(const KvPoolLayout& rank_layout, const KvPoolLayout& layout, PoolCopies& copies,
             std::span<std::byte> staging, const Limits& limits, const SharedStaging& shared = {});
  // Waits for the running copies.
  ~StagedPool() override;

  PoolMemory memory() const override { return PoolMemory::kDevice; }
  std::optional<PoolLease> Acquire(PoolAccess access, LandingParts parts,
                                   LayerRange layers) override;
  bool Settled() override;
  absl::Status TakeStoreError() override;
  DeviceBlockCopies* block_copies() override {
    return rank_layout_.has_value() && !copies_.ranks_reach_first() ? nullptr : &block_copies_;
  }
  int64_t BytesThroughHost() const override { return bytes_through_host_; }
  std::optional<PoolExport> exported() const override;
  std::byte* AddressForCopyEngine() const override { return address_; }

 private:
  StagedPool(std::optional<KvPoolLayout> rank_layout, std::byte* address,
             const KvPoolLayout& layout, PoolCopies& copies, std::span<std::byte> staging,
             const Limits& limits, const SharedStaging& shared);

  struct Buffer {
    std::span<std::byte> memory;
    BlockId slot{0};  // in `memory`, if it is shared
    bool leased = false;
    std::optional<uint64_t> copy;  // running copy
    bool stores = false;           // the lease's copy goes into the pool
    absl::Status failed;           // error of this lease's copy
    bool told = false;             // the lease's owner was told of it
    std::vector<PoolCopies::Run> runs;
  };

  absl::StatusOr<bool> BufferReady(int32_t buffer) override;
  void StoreBuffer(int32_t buffer) override;
  void ReturnBuffer(int32_t buffer) override;

  Buffer& At(int32_t buffer) { return buffers_[static_cast<size_t>(buffer)]; }
  // Polls the buffer's copy. Returns true when none is running.
  bool CopyEnded(Buffer& buffer);
  void Begin(Buffer& buffer, PoolCopies::Direction direction);
  void KeepStoreError(const Buffer& buffer);
  // Returns the tokens of `parts` in staging buffer `number`, where they lie side by side.
  PieceBytes Staged(int32_t number, const LandingParts& parts, LayerRange layers) const;

  // Appends the copies of a buffer in a pool that is not divided.
  void AppendRuns(const LandingParts& parts, LayerRange layers, const PieceBytes& staged,
                  std::vector<PoolCopies::Run>& runs) const;

  const std::optional<KvPoolLayout> rank_layout_;  // absent: the pool is not divided
  std::byte* const address_;                       // null: the pool is divided
  PoolCopies& copies_;
  const int32_t read_buffers_;
  DeviceBlockCopies block_copies_;
  std::atomic<int64_t> bytes_through_host_ = 0;
  absl::Status store_error_;           // of a released lease
  std::vector<Buffer> buffers_;        // read buffers first, then landing buffers
  std::vector<KvPoolLayout> layouts_;  // layouts of a staging buffer, by log2 of its room in tokens
  const SharedStaging shared_;
  std::optional<KvPoolLayout> slots_;  // of shared read buffers
};

}  // namespace baton
