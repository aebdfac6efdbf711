// Copies between a pool in device memory and staging memory, on a stream of their own.
//
// A copy is one op (Ops::CopyRuns), however many pieces it has. If the pool is divided among the
// devices of a tensor-parallel group, it is one op on each device (Ops::CopyRows). The pool has few
// staging buffers, so few ops are enqueued at a time, and Begin does not meet a full queue of the
// driver.
//
// Thread safety: Begin and Ended belong to one thread at a time, the one that runs the transport's
// rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/byte_run.h"
#include "kernels/device.h"
#include "kvtransfer/pool/staged_pool.h"

namespace baton {

class DeviceCopies final : public PoolCopies {
 public:
  // One rank's part of the pool: its device, which outlives this object, and its address there.
  struct Part {
    Device* device = nullptr;
    std::byte* pool = nullptr;
  };
  // The parts of all ranks, or one if the pool is not divided.
  explicit DeviceCopies(std::span<const Part> parts);
  DeviceCopies(Device& device, std::byte* pool)
      : DeviceCopies(std::vector<Part>{{.device = &device, .pool = pool}}) {}

  absl::StatusOr<uint64_t> Begin(Direction direction, std::span<const Run> runs) override;
  absl::StatusOr<bool> Ended(uint64_t copy) override;

 private:
  struct Rank {
    Part part;
    std::unique_ptr<Stream> stream;
    std::vector<std::unique_ptr<Event>> idle = {};
    std::vector<ByteRows> rows = {};  // reused by Begin
  };
  using Events = std::vector<std::unique_ptr<Event>>;  // of all ranks

  std::unique_ptr<Event> RecordEnd(Rank& rank);

  std::vector<Rank> ranks_;
  uint64_t last_ = 0;
  std::map<uint64_t, Events> running_;
  std::vector<ByteRun> list_;  // reused by Begin
};

}  // namespace baton
