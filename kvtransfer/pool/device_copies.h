// Copies between a pool in device memory and other memory, on a stream of their own.
//
// A copy is one op (Ops::CopyRuns), however many pieces it has. If the pool is divided among the
// devices of a tensor-parallel group, it is one op on each device (Ops::CopyRows). If it is between
// such a pool and memory of the first device, that device also computes the checksums, in an op of
// its own: behind the copies from the pool, or before those into it. Ended begins what follows. The
// pool has few staging buffers and limits its block copies, so few launches are enqueued at a time,
// and Begin does not meet a full queue of the driver.
//
// Thread safety: Begin and Ended belong to one thread at a time, the one that runs the transport's
// rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/byte_run.h"
#include "kernels/device.h"
#include "kvtransfer/pool/pool_copies.h"

namespace baton {

class DeviceCopies final : public PoolCopies {
 public:
  // One rank's part of the pool: its device, which outlives this object, and its address there.
  struct Part {
    Device* device = nullptr;
    std::byte* pool = nullptr;
  };
  // The parts of all ranks, or one if the pool is not divided. `reach_first`: as in DeviceGroup.
  explicit DeviceCopies(std::span<const Part> parts, bool reach_first = false);
  DeviceCopies(Device& device, std::byte* pool)
      : DeviceCopies(std::vector<Part>{{.device = &device, .pool = pool}}) {}

  // Loads the kernels of BeginOnDevice and BeginOnRanks, and allocates their memory, so that no
  // transfer has to.
  absl::Status Prepare();
  absl::StatusOr<uint64_t> Begin(Direction direction, std::span<const Run> runs) override;
  absl::StatusOr<uint64_t> BeginOnDevice(Direction direction, std::span<const Run> runs,
                                         uint32_t* checksums) override;
  bool ranks_reach_first() const override { return zeros_ != nullptr; }
  absl::StatusOr<uint64_t> BeginOnRanks(const RankCopies& copies, uint32_t* checksums) override;
  absl::StatusOr<bool> Ended(uint64_t copy) override;

 private:
  struct Rank {
    Part part;
    std::unique_ptr<Stream> stream;
    std::vector<std::unique_ptr<Event>> idle = {};
    std::vector<ByteRows> rows = {};  // reused by Enqueue
  };
  // Of some ranks.
  using Events = std::vector<std::pair<size_t, std::unique_ptr<Event>>>;
  // A copy of BeginOnRanks.
  struct OnRanks {
    Direction direction = Direction::kFromPool;
    std::byte* memory = nullptr;
    std::vector<std::vector<ByteRows>> rows = {};  // of each rank
    std::vector<ByteRows> padding = {};
    std::vector<ByteRun> pieces = {};
    uint32_t* checksums = nullptr;
  };
  struct Copy {
    Events ends;
    std::optional<OnRanks> half_done = {};  // its second half begins when `ends` are done
  };

  void RecordEnd(size_t rank, Events& ends);
  absl::StatusOr<uint64_t> Enqueue(Direction direction, std::span<const Run> runs, bool on_host,
                                   uint32_t* checksums);
  // The two halves of a copy of BeginOnRanks.
  Events EnqueueRows(const OnRanks& copy);
  Events EnqueueChecksums(const OnRanks& copy);
  // Appends the run as `rank`'s op needs it. `memory`: where its staging offsets begin.
  static void AppendRows(Direction direction, const Run& run, const std::byte* memory,
                         std::vector<ByteRows>& rows);

  const bool reach_first_;
  std::unique_ptr<DeviceBuffer> zeros_;  // on the first device; null: BeginOnRanks is not possible
  std::vector<Rank> ranks_;
  uint64_t last_ = 0;
  std::map<uint64_t, Copy> running_;
  std::vector<ByteRun> list_;  // reused by Enqueue
};

}  // namespace baton
