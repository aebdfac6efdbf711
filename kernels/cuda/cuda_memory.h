// Memory of a CUDA device: buffers on the device, buffers that grow and shrink, and pinned host
// memory for copies.
//
// New pages of a buffer are zero, both when the buffer is created and when it grows. A stream of
// this object clears them, and the call waits for it. So a buffer never shows bytes of an earlier
// owner.
//
// Thread safety: safe from any thread. Buffers may outlive the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/device.h"

namespace baton {

class CudaMemory : public std::enable_shared_from_this<CudaMemory> {
 public:
  static absl::StatusOr<std::shared_ptr<CudaMemory>> Create(std::shared_ptr<CudaContext> context);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // As the functions of Device. Errors name `purpose` and the size.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes, std::string_view purpose);
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateStaging(size_t bytes,
                                                                std::string_view purpose);
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateSharedStaging(size_t bytes,
                                                                      std::string_view purpose);
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Reserve(size_t bytes, std::string_view purpose);

  size_t allocated_bytes() const { return allocated_bytes_.load(); }
  DeviceMemory Info();

 private:
  friend class CudaDeviceBuffer;
  friend class CudaStagingBuffer;
  friend class CudaSharedStagingBuffer;
  friend class CudaReservedBuffer;

  explicit CudaMemory(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}
  // Enqueues the clearing of a range on stream_.
  absl::Status Clear(std::byte* begin, size_t bytes);
  // Waits for the clearings.
  absl::Status WaitUntilClear();

  const std::shared_ptr<CudaContext> context_;
  CuStream stream_ = nullptr;
  std::atomic<size_t> allocated_bytes_ = 0;
};

}  // namespace baton
