#include "kernels/cuda/cuda_memory.h"

#include <algorithm>
#include <cstring>

#include "common/shared_page_buffer.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/cuda/cuda_reserved_buffer.h"

namespace baton {
namespace {

absl::Status CannotAllocate(std::string_view what, size_t bytes, std::string_view purpose,
                            const absl::Status& why) {
  return {why.code(), StrCat("cannot allocate ", bytes, " bytes of ", what, " for ", purpose, ": ",
                             why.message())};
}

}  // namespace

class CudaDeviceBuffer final : public DeviceBuffer {
 public:
  CudaDeviceBuffer(std::shared_ptr<CudaMemory> memory, CuDevicePointer data, size_t size)
      : memory_(std::move(memory)), data_(data), size_(size) {
    memory_->allocated_bytes_ += size_;
  }
  ~CudaDeviceBuffer() override {
    memory_->context_->Check("cuMemFree", memory_->context_->Enter().MemFree(data_)).IgnoreError();
    memory_->allocated_bytes_ -= size_;
  }
  std::byte* data() const override { return reinterpret_cast<std::byte*>(data_); }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<CudaMemory> memory_;
  const CuDevicePointer data_;
  const size_t size_;
};

class CudaStagingBuffer final : public DeviceBuffer {
 public:
  CudaStagingBuffer(std::shared_ptr<CudaMemory> memory, void* data, size_t size)
      : memory_(std::move(memory)), data_(data), size_(size) {
    memory_->allocated_bytes_ += size_;
  }
  ~CudaStagingBuffer() override {
    memory_->context_->Check("cuMemFreeHost", memory_->context_->Enter().MemFreeHost(data_))
        .IgnoreError();
    memory_->allocated_bytes_ -= size_;
  }
  std::byte* data() const override { return static_cast<std::byte*>(data_); }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<CudaMemory> memory_;
  void* const data_;
  const size_t size_;
};

class CudaSharedStagingBuffer final : public DeviceBuffer {
 public:
  // REQUIRES: `pages` are registered.
  CudaSharedStagingBuffer(std::shared_ptr<CudaMemory> memory, SharedPageBuffer pages)
      : memory_(std::move(memory)), pages_(std::move(pages)) {
    memory_->allocated_bytes_ += pages_.size();
  }
  ~CudaSharedStagingBuffer() override {
    memory_->context_
        ->Check("cuMemHostUnregister", memory_->context_->Enter().MemHostUnregister(pages_.data()))
        .IgnoreError();
    memory_->allocated_bytes_ -= pages_.size();
  }
  std::byte* data() const override { return pages_.data(); }
  size_t size() const override { return pages_.size(); }
  int shared_fd() const override { return pages_.fd(); }

 private:
  const std::shared_ptr<CudaMemory> memory_;
  const SharedPageBuffer pages_;
};

absl::StatusOr<std::shared_ptr<CudaMemory>> CudaMemory::Create(
    std::shared_ptr<CudaContext> context) {
  std::shared_ptr<CudaMemory> memory(new CudaMemory(std::move(context)));
  CudaContext& cuda = *memory->context_;
  RETURN_IF_ERROR(cuda.Check("cuStreamCreate",
                             cuda.Enter().StreamCreate(&memory->stream_, kCuStreamNonBlocking)));
  return memory;
}

CudaMemory::~CudaMemory() {
  if (stream_ != nullptr) context_->Enter().StreamDestroy(stream_);
}

absl::Status CudaMemory::Clear(std::byte* begin, size_t bytes) {
  return context_->Check(
      "cuMemsetD8Async",
      context_->Enter().MemsetD8Async(reinterpret_cast<CuDevicePointer>(begin), 0, bytes, stream_));
}

absl::Status CudaMemory::WaitUntilClear() {
  return context_->Check("cuStreamSynchronize", context_->Enter().StreamSynchronize(stream_));
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaMemory::Allocate(size_t bytes,
                                                                   std::string_view purpose) {
  RETURN_IF_ERROR(context_->Health());
  const size_t size = std::max<size_t>(bytes, 1);  // CUDA refuses 0
  CuDevicePointer data = 0;
  const absl::Status allocated =
      context_->Check("cuMemAlloc", context_->Enter().MemAlloc(&data, size));
  if (!allocated.ok()) {
    return CannotAllocate(
        StrCat("device memory, of which ", Info().available, " bytes are available,"), bytes,
        purpose, allocated);
  }
  auto buffer = std::make_unique<CudaDeviceBuffer>(shared_from_this(), data, bytes);
  RETURN_IF_ERROR(Clear(buffer->data(), size));
  RETURN_IF_ERROR(WaitUntilClear());
  return buffer;
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaMemory::AllocateStaging(
    size_t bytes, std::string_view purpose) {
  RETURN_IF_ERROR(context_->Health());
  void* data = nullptr;
  const absl::Status allocated = context_->Check(
      "cuMemHostAlloc",
      context_->Enter().MemHostAlloc(&data, std::max<size_t>(bytes, 1), kCuHostAllocPortable));
  if (!allocated.ok()) return CannotAllocate("pinned host memory", bytes, purpose, allocated);
  std::memset(data, 0, bytes);
  return std::make_unique<CudaStagingBuffer>(shared_from_this(), data, bytes);
}

// Registration that fails costs only shared memory, so its errors do not become the device's
// health.
absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaMemory::AllocateSharedStaging(
    size_t bytes, std::string_view purpose) {
  RETURN_IF_ERROR(context_->Health());
  if (!context_->registered_memory_has_host_pointers()) {
    return absl::UnimplementedError(
        "this CUDA device has other addresses than the host for memory that is not its own");
  }
  ASSIGN_OR_RETURN(SharedPageBuffer pages, SharedPageBuffer::Allocate(bytes, purpose));
  const CudaDriver& driver = context_->Enter();
  const CuResult registered = driver.MemHostRegister(
      pages.data(), pages.mapped_bytes(), kCuHostRegisterPortable | kCuHostRegisterMapped);
  if (registered != kCuSuccess) {
    return CannotAllocate("pinned shared memory", bytes, purpose,
                          CudaErrorOf(driver, "cuMemHostRegister", registered));
  }
  return std::make_unique<CudaSharedStagingBuffer>(shared_from_this(), std::move(pages));
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaMemory::Reserve(size_t bytes,
                                                                  std::string_view purpose) {
  RETURN_IF_ERROR(context_->Health());
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> buffer =
      CudaReservedBuffer::Create(shared_from_this(), bytes);
  if (!buffer.ok()) return CannotAllocate("device addresses", bytes, purpose, buffer.status());
  return buffer;
}

DeviceMemory CudaMemory::Info() {
  size_t free = 0;
  size_t total = 0;
  const absl::Status known =
      context_->Check("cuMemGetInfo", context_->Enter().MemGetInfo(&free, &total));
  if (!known.ok()) return {};
  return {.total = static_cast<int64_t>(total), .available = static_cast<int64_t>(free)};
}

}  // namespace baton
