// Device memory that grows and shrinks inside a reserved address range, with CUDA's virtual memory
// management. Physical memory comes in granules: the driver's, 2 MiB on the devices known so far,
// or several of them in large ranges. A granule costs three calls, so small ones would make the
// start with a pool of 100 GiB slow.
//
// Invariants:
//  1. A granule with a populated byte has memory. Other granules have none, with two exceptions: a
//     call is changing the granule, or the driver refused to unmap it. The next Populate uses a
//     refused granule, or the next Discard unmaps it.
//  2. One call at a time changes a granule and holds it meanwhile. Calls into the driver happen
//     without the mutex. So a call waits for at most kGranulesAtOnce granules of another call, and
//     only if it needs one of them.
//
// Bytes that are not populated must not be accessed. They may have no memory, and then an access is
// a fault.
//
// Thread safety: Populate, Discard and MissingMemory are safe from any thread. The caller ensures
// that no op uses a range during its Discard, and that a range is not discarded while it is
// populated.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/byte_ranges.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device.h"

namespace baton {

class CudaReservedBuffer final : public DeviceBuffer {
 public:
  static constexpr size_t kGranulesAtOnce = 16;
  static constexpr size_t kMostGranules = 8192;  // of a range

  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Create(std::shared_ptr<CudaMemory> memory,
                                                              size_t bytes);
  ~CudaReservedBuffer() override;

  std::byte* data() const override { return reinterpret_cast<std::byte*>(address_); }
  size_t size() const override { return size_; }
  absl::Status Populate(size_t offset, size_t bytes) override;
  void Discard(size_t offset, size_t bytes) override;
  size_t MissingMemory(size_t offset, size_t bytes) const override;
  size_t granularity() const override { return granularity_; }

 private:
  CudaReservedBuffer(std::shared_ptr<CudaMemory> memory, size_t bytes)
      : memory_(std::move(memory)), size_(bytes) {}
  // Populates bytes [begin, end), which lie in at most kGranulesAtOnce granules. On an error, none
  // of these bytes becomes populated.
  absl::Status PopulatePart(size_t begin, size_t end);
  // Waits until no other call holds a granule of [begin, end).
  void WaitForGranules(std::unique_lock<std::mutex>& lock, size_t begin, size_t end);
  // Returns the first granule of [granule, last) that has memory or that a call holds, or `last`.
  // REQUIRES: the mutex.
  size_t NextInUse(size_t granule, size_t last) const;

  // Calls into the driver, without the mutex. The caller holds the granules.
  absl::Status Map(size_t granule);  // without access
  absl::Status AllowAccess(size_t granule, size_t count);
  // Maps all granules or none, with access. On an error, `granules` are those that the driver did
  // not unmap again. REQUIRES: they rise.
  absl::Status MapAll(std::vector<size_t>& granules);
  absl::Status Unmap(size_t granule);

  const std::shared_ptr<CudaMemory> memory_;
  const size_t size_;
  size_t granularity_ = 0;  // bytes of a granule
  CuDevicePointer address_ = 0;
  size_t reserved_bytes_ = 0;  // size_ in whole granules
  mutable std::mutex mutex_;
  std::condition_variable released_;  // a call holds fewer granules
  // Guarded by mutex_:
  ByteRanges populated_;
  std::set<size_t> mapped_;  // granules with memory
  std::set<size_t> held_;    // granules that a call changes
};

}  // namespace baton
