// Device memory that grows and shrinks inside a reserved address range, with CUDA's virtual memory
// management. Physical memory comes in granules, 2 MiB on the devices known so far.
//
// Invariant: a granule has memory exactly if one of its bytes is populated. Bytes that are not
// populated must not be accessed: without memory, an access is a fault.
//
// Thread safety: Populate and Discard are safe from any thread. The caller ensures that no op uses
// a range during its Discard.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/byte_ranges.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device.h"

namespace baton {

class CudaReservedBuffer final : public DeviceBuffer {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Create(std::shared_ptr<CudaMemory> memory,
                                                              size_t bytes);
  ~CudaReservedBuffer() override;

  std::byte* data() const override { return reinterpret_cast<std::byte*>(address_); }
  size_t size() const override { return size_; }
  absl::Status Populate(size_t offset, size_t bytes) override;
  void Discard(size_t offset, size_t bytes) override;
  size_t granularity() const override { return granularity_; }

 private:
  CudaReservedBuffer(std::shared_ptr<CudaMemory> memory, size_t bytes)
      : memory_(std::move(memory)), size_(bytes) {}
  // Backs the granules [begin, end) that have no memory. On an error, none of them gets any.
  absl::Status Map(size_t begin, size_t end);
  void Unmap(size_t granule);

  const std::shared_ptr<CudaMemory> memory_;
  const size_t size_;
  size_t granularity_ = 0;  // bytes of a granule
  CuDevicePointer address_ = 0;
  size_t reserved_bytes_ = 0;  // size_ in whole granules
  std::mutex mutex_;
  // Guarded by mutex_:
  ByteRanges populated_;
  std::map<size_t, CuMemoryHandle> mapped_;  // by granule
};

}  // namespace baton
