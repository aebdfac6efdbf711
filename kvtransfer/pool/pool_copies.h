// Asynchronous copies between a pool that the host cannot read and staging memory (with CUDA: on a
// stream, each with its event). Staging memory is memory of the host, or NCCL's on the pool's
// device. A copy that has begun always ends, even if its lease is released.
//
// Thread safety: as TransferPool; the implementation decides where copies run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/byte_run.h"

namespace baton {

class PoolCopies {
 public:
  enum class Direction : uint8_t { kFromPool, kToPool };
  // One contiguous copy, or one of rows at equal distances. `pool_offset` counts from the beginning
  // of the rank's pool.
  struct Run {
    int64_t pool_offset = 0;
    std::byte* staging = nullptr;
    int64_t bytes = 0;  // of a row
    int32_t rank = 0;
    int64_t rows = 1;
    int64_t pool_stride = 0;
    int64_t staging_stride = 0;
  };

  // A copy between a divided pool and memory of the first rank's device. Offsets count from
  // `memory`.
  struct RankCopies {
    Direction direction = Direction::kFromPool;
    std::byte* memory = nullptr;
    std::span<const Run> runs;          // `staging` is in `memory`
    std::span<const ByteRun> pieces;    // `from` and `to` are equal
    std::span<const ByteRows> padding;  // of rows in `memory`; no rank has it, so it is set to zero
  };

  virtual ~PoolCopies() = default;
  // Begins a copy to or from staging memory of the host; never blocks. `runs` need not outlive the
  // call. Returns an id for Ended.
  virtual absl::StatusOr<uint64_t> Begin(Direction direction, std::span<const Run> runs) = 0;
  // Begins a copy to or from staging memory on the pool's device, in the same way. `checksums`
  // [runs.size()] is memory of the host; it gets the CRC32C of each run's bytes as they were
  // copied. REQUIRES: the pool is not divided among devices.
  virtual absl::StatusOr<uint64_t> BeginOnDevice(Direction direction, std::span<const Run> runs,
                                                 uint32_t* checksums) = 0;
  // True if the pool is divided and every rank's device can use memory of the first one.
  virtual bool ranks_reach_first() const { return false; }
  // Begins a copy of a divided pool to or from memory on the first rank's device, in the same way.
  // `checksums` [copies.pieces.size()] is as in BeginOnDevice. REQUIRES: ranks_reach_first().
  virtual absl::StatusOr<uint64_t> BeginOnRanks(const RankCopies& /*copies*/,
                                                uint32_t* /*checksums*/) {
    return absl::UnimplementedError("these copies know no ranks");
  }
  // Returns true when the copy has ended. An error means that it has ended and failed. Do not ask
  // again after either.
  virtual absl::StatusOr<bool> Ended(uint64_t copy) = 0;
};

}  // namespace baton
