#include "kernels/cuda/cuda_reserved_buffer.h"

#include <algorithm>
#include <iterator>
#include <utility>

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
  const size_t alignment = buffer->granularity_;
  while (bytes / buffer->granularity_ > kMostGranules) buffer->granularity_ *= 2;
  const size_t granule = buffer->granularity_;
  buffer->reserved_bytes_ = (std::max<size_t>(bytes, 1) + granule - 1) / granule * granule;
  RETURN_IF_ERROR(cuda.Check(
      "cuMemAddressReserve",
      driver.MemAddressReserve(&buffer->address_, buffer->reserved_bytes_, alignment, 0, 0)));
  buffer->memory_->allocated_bytes_ += bytes;
  return buffer;
}

CudaReservedBuffer::~CudaReservedBuffer() {
  if (address_ == 0) return;
  for (const size_t granule : mapped_) Unmap(granule).IgnoreError();
  CudaContext& cuda = *memory_->context_;
  // Fails if a granule is still mapped. The addresses are then lost, but nothing else.
  cuda.Check("cuMemAddressFree", cuda.Enter().MemAddressFree(address_, reserved_bytes_))
      .IgnoreError();
  memory_->allocated_bytes_ -= size_;
}

// ---- the driver ---------------------------------------------------------------------------------

// The mapping alone keeps the memory alive, so that unmapping a granule frees it.
absl::Status CudaReservedBuffer::Map(size_t granule) {
  CudaContext& cuda = *memory_->context_;
  const CudaDriver& driver = cuda.Enter();
  const CuAllocationProperties properties = PropertiesOf(cuda);
  CuMemoryHandle handle = 0;
  RETURN_IF_ERROR(
      cuda.Check("cuMemCreate", driver.MemCreate(&handle, granularity_, &properties, 0)));
  absl::Status status = cuda.Check(
      "cuMemMap", driver.MemMap(address_ + granule * granularity_, granularity_, 0, handle, 0));
  const bool mapped = status.ok();
  status.Update(cuda.Check("cuMemRelease", driver.MemRelease(handle)));
  // The addresses then keep memory without access, which would be a fault at the next use.
  if (mapped && !status.ok() && !Unmap(granule).ok()) cuda.Fail(status);
  return status;
}

absl::Status CudaReservedBuffer::AllowAccess(size_t granule, size_t count) {
  CudaContext& cuda = *memory_->context_;
  const CuAccess access{.location = PropertiesOf(cuda).location};
  return cuda.Check("cuMemSetAccess", cuda.Enter().MemSetAccess(address_ + granule * granularity_,
                                                                count * granularity_, &access, 1));
}

absl::Status CudaReservedBuffer::MapAll(std::vector<size_t>& granules) {
  absl::Status status;
  size_t mapped = 0;
  for (; mapped < granules.size(); ++mapped) {
    status = Map(granules[mapped]);
    if (!status.ok()) break;
  }
  for (size_t first = 0, last = 0; first < mapped && status.ok(); first = last) {
    for (last = first + 1; last < mapped && granules[last] == granules[last - 1] + 1;) ++last;
    status = AllowAccess(granules[first], last - first);
  }
  if (status.ok()) return status;
  granules.resize(mapped);
  std::erase_if(granules, [this](size_t granule) { return Unmap(granule).ok(); });
  for (const size_t granule : granules) {
    if (const absl::Status allowed = AllowAccess(granule, 1); !allowed.ok()) {
      memory_->context_->Fail(allowed);
    }
  }
  return status;
}

absl::Status CudaReservedBuffer::Unmap(size_t granule) {
  CudaContext& cuda = *memory_->context_;
  return cuda.Check("cuMemUnmap",
                    cuda.Enter().MemUnmap(address_ + granule * granularity_, granularity_));
}

// ---- granules -----------------------------------------------------------------------------------

void CudaReservedBuffer::WaitForGranules(std::unique_lock<std::mutex>& lock, size_t begin,
                                         size_t end) {
  released_.wait(lock, [&] {
    const auto held = held_.lower_bound(begin);
    return held == held_.end() || *held >= end;
  });
}

size_t CudaReservedBuffer::NextInUse(size_t granule, size_t last) const {
  for (const std::set<size_t>* const granules : {&mapped_, &held_}) {
    const auto next = granules->lower_bound(granule);
    if (next != granules->end()) last = std::min(last, *next);
  }
  return last;
}

absl::Status CudaReservedBuffer::PopulatePart(size_t begin, size_t end) {
  const size_t first = begin / granularity_;
  const size_t last = (end + granularity_ - 1) / granularity_;
  std::vector<std::pair<size_t, size_t>> missing;
  std::vector<size_t> unmapped;
  {
    std::unique_lock lock(mutex_);
    WaitForGranules(lock, first, last);
    populated_.ForEachMissing(begin, end,
                              [&](size_t from, size_t to) { missing.emplace_back(from, to); });
    if (missing.empty()) return absl::OkStatus();
    for (size_t granule = first; granule < last; ++granule) {
      if (!mapped_.contains(granule)) unmapped.push_back(granule);
      held_.insert(granule);
    }
  }
  absl::Status status = MapAll(unmapped);
  for (const auto& [from, to] : missing) {
    if (status.ok()) status = memory_->Clear(data() + from, to - from);
  }
  if (status.ok()) status = memory_->WaitUntilClear();
  {
    const std::lock_guard lock(mutex_);
    mapped_.insert(unmapped.begin(), unmapped.end());
    if (status.ok()) populated_.Add(begin, end);
    held_.erase(held_.lower_bound(first), held_.lower_bound(last));
  }
  released_.notify_all();
  return status;
}

absl::Status CudaReservedBuffer::Populate(size_t offset, size_t bytes) {
  CHECK(offset <= size_ && bytes <= size_ - offset) << "beyond the reserved range";
  const size_t end = offset + bytes;
  const size_t part = kGranulesAtOnce * granularity_;
  for (size_t begin = offset; begin < end;) {
    const size_t next = std::min(end, (begin / part + 1) * part);
    RETURN_IF_ERROR(PopulatePart(begin, next));
    begin = next;
  }
  return absl::OkStatus();
}

void CudaReservedBuffer::Discard(size_t offset, size_t bytes) {
  CHECK(offset <= size_ && bytes <= size_ - offset) << "beyond the reserved range";
  const size_t end = offset + bytes;
  const size_t last = (end + granularity_ - 1) / granularity_;
  std::unique_lock lock(mutex_);
  for (size_t granule = NextInUse(offset / granularity_, last); granule < last;
       granule = NextInUse(granule + 1, last)) {
    WaitForGranules(lock, granule, granule + 1);
    const size_t begin = granule * granularity_;
    populated_.Remove(std::max(offset, begin), std::min(end, begin + granularity_));
    if (!mapped_.contains(granule) || populated_.Overlaps(begin, begin + granularity_)) continue;
    held_.insert(granule);
    lock.unlock();
    const absl::Status unmapped = Unmap(granule);
    if (!unmapped.ok()) LOG(ERROR) << "a part of the KV pool keeps its memory: " << unmapped;
    lock.lock();
    if (unmapped.ok()) mapped_.erase(granule);
    held_.erase(granule);
    released_.notify_all();
  }
}

size_t CudaReservedBuffer::MissingMemory(size_t offset, size_t bytes) const {
  CHECK(offset <= size_ && bytes <= size_ - offset) << "beyond the reserved range";
  const size_t first = offset / granularity_;
  const size_t last = (offset + bytes + granularity_ - 1) / granularity_;
  const std::lock_guard lock(mutex_);
  const auto mapped =
      std::distance(mapped_.lower_bound(first), mapped_.lower_bound(std::max(first, last)));
  return (last - first - static_cast<size_t>(mapped)) * granularity_;
}

}  // namespace baton
