#include "kernels/cuda/cuda_reserved_buffer.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton {
namespace {

CuAllocationProperties PropertiesOf(const CudaContext& cuda) {
  return {.location = {.type = kCuLocationDevice, .id = cuda.index()}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaReservedBuffer::Create(
    std::shared_ptr<CudaMemory> memory, size_t bytes) {
  std::unique_ptr<CudaReservedBuffer> buffer(new CudaReservedBuffer(std::move(memory), bytes));
  CudaContext& cuda = *buffer->memory_->context_;
  const CudaDriver& driver = cuda.Enter();
  const CuAllocationProperties properties = PropertiesOf(cuda);
  RETURN_IF_ERROR(cuda.Check("cuMemGetAllocationGranularity",
                             driver.MemGetAllocationGranularity(&buffer->granularity_, &properties,
                                                                kCuGranularityMinimum)));
  const size_t granule = buffer->granularity_;
  buffer->reserved_bytes_ = (std::max<size_t>(bytes, 1) + granule - 1) / granule * granule;
  RETURN_IF_ERROR(cuda.Check(
      "cuMemAddressReserve",
      driver.MemAddressReserve(&buffer->address_, buffer->reserved_bytes_, granule, 0, 0)));
  buffer->memory_->allocated_bytes_ += bytes;
  return buffer;
}

CudaReservedBuffer::~CudaReservedBuffer() {
  if (address_ == 0) return;
  while (!mapped_.empty()) Unmap(mapped_.begin()->first);
  CudaContext& cuda = *memory_->context_;
  cuda.Check("cuMemAddressFree", cuda.Enter().MemAddressFree(address_, reserved_bytes_))
      .IgnoreError();
  memory_->allocated_bytes_ -= size_;
}

absl::Status CudaReservedBuffer::Map(size_t begin, size_t end) {
  CudaContext& cuda = *memory_->context_;
  const CudaDriver& driver = cuda.Enter();
  const CuAllocationProperties properties = PropertiesOf(cuda);
  const CuAccess access{.location = properties.location};
  std::vector<size_t> added;
  absl::Status status;
  for (size_t granule = begin; granule < end && status.ok(); ++granule) {
    if (mapped_.contains(granule)) continue;
    CuMemoryHandle handle = 0;
    status = cuda.Check("cuMemCreate", driver.MemCreate(&handle, granularity_, &properties, 0));
    if (!status.ok()) break;
    const CuDevicePointer at = address_ + granule * granularity_;
    status = cuda.Check("cuMemMap", driver.MemMap(at, granularity_, 0, handle, 0));
    if (!status.ok()) {
      driver.MemRelease(handle);
      break;
    }
    mapped_.emplace(granule, handle);
    added.push_back(granule);
    status = cuda.Check("cuMemSetAccess", driver.MemSetAccess(at, granularity_, &access, 1));
  }
  if (!status.ok()) {
    for (const size_t granule : added) Unmap(granule);
  }
  return status;
}

void CudaReservedBuffer::Unmap(size_t granule) {
  const auto at = mapped_.find(granule);
  CudaContext& cuda = *memory_->context_;
  const CudaDriver& driver = cuda.Enter();
  cuda.Check("cuMemUnmap", driver.MemUnmap(address_ + granule * granularity_, granularity_))
      .IgnoreError();
  cuda.Check("cuMemRelease", driver.MemRelease(at->second)).IgnoreError();
  mapped_.erase(at);
}

absl::Status CudaReservedBuffer::Populate(size_t offset, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  CHECK(offset <= size_ && bytes <= size_ - offset) << "beyond the reserved range";
  const std::lock_guard lock(mutex_);
  const size_t end = offset + bytes;
  RETURN_IF_ERROR(Map(offset / granularity_, (end + granularity_ - 1) / granularity_));
  absl::Status status;
  populated_.Add(offset, end, [&](size_t begin, size_t end) {
    if (status.ok()) status = memory_->Clear(data() + begin, end - begin);
  });
  RETURN_IF_ERROR(status);
  return memory_->WaitUntilClear();
}

void CudaReservedBuffer::Discard(size_t offset, size_t bytes) {
  if (bytes == 0) return;
  CHECK(offset <= size_ && bytes <= size_ - offset) << "beyond the reserved range";
  const std::lock_guard lock(mutex_);
  const size_t end = offset + bytes;
  populated_.Remove(offset, end);
  for (size_t granule = offset / granularity_; granule * granularity_ < end; ++granule) {
    const size_t begin = granule * granularity_;
    if (mapped_.contains(granule) && !populated_.Overlaps(begin, begin + granularity_)) {
      Unmap(granule);
    }
  }
}

}  // namespace baton
