// Copies between a pool in device memory and other memory, on a stream of their own.
//
// A copy is one op (Ops::CopyRuns), however many pieces it has. The pool has few staging buffers
// and limits its block copies, so few launches are enqueued at a time, and Begin does not meet a
// full queue of the driver.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/byte_run.h"
#include "kernels/device.h"
#include "kvtransfer/pool/pool_copies.h"

namespace baton {

class DeviceCopies final : public PoolCopies {
 public:
  // `pool` is the pool's address on `device`, which outlives this object.
  DeviceCopies(Device& device, std::byte* pool)
      : device_(device), pool_(pool), stream_(device.CreateStream()) {}

  // Loads the kernels of BeginOnDevice and allocates their memory, so that no transfer has to.
  absl::Status Prepare();
  absl::StatusOr<uint64_t> Begin(Direction direction, std::span<const Run> runs) override;
  absl::StatusOr<uint64_t> BeginOnDevice(Direction direction, std::span<const Run> runs,
                                         uint32_t* checksums) override;
  absl::StatusOr<bool> Ended(uint64_t copy) override;

 private:
  absl::StatusOr<uint64_t> Enqueue(Direction direction, std::span<const Run> runs, bool on_host,
                                   uint32_t* checksums);

  Device& device_;
  std::byte* const pool_;
  const std::unique_ptr<Stream> stream_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::unique_ptr<Event>> running_;
  std::vector<std::unique_ptr<Event>> idle_;
  std::vector<ByteRun> list_;  // reused by Enqueue
};

}  // namespace baton
