#include "tests/gpu_emulator/emulated_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <iterator>

#include "common/check.h"

namespace baton::gpu_emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;  // of a buffer, as on GPUs
constexpr int kNewByte = 0xff;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

std::byte* HostAddress(CuDevicePointer address) { return reinterpret_cast<std::byte*>(address); }

void* MapPages(size_t bytes, int protection) {
  void* const pages =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

// Returns the range that contains `address`, or the end.
template <typename Ranges>
auto Containing(Ranges& ranges, CuDevicePointer address) {
  auto at = ranges.upper_bound(address);
  if (at == ranges.begin()) return ranges.end();
  --at;
  return address - at->first < at->second.bytes ? at : ranges.end();
}

}  // namespace

EmulatedMemory::~EmulatedMemory() {
  for (const auto* const ranges : {&device_, &pinned_}) {
    for (const auto& [address, range] : *ranges) {
      if (range.pages != nullptr) munmap(range.pages, range.page_bytes);
    }
  }
  for (const auto& [address, bytes] : reserved_) munmap(HostAddress(address), bytes);
}

size_t EmulatedMemory::free() const {
  const std::lock_guard lock(mutex_);
  return total_ - used_;
}

// A buffer ends at a page's end, so that most accesses behind it reach the guard page.
CuResult EmulatedMemory::Allocate(CuDevicePointer* address, size_t bytes) {
  if (bytes == 0) return kCuInvalidValue;
  const std::lock_guard lock(mutex_);
  const size_t room = RoundUp(bytes, kPage);
  if (room > total_ - used_) return kCuOutOfMemory;
  Range range{.bytes = bytes, .page_bytes = room + 2 * kPage};
  range.pages = MapPages(range.page_bytes, PROT_NONE);
  if (range.pages == nullptr) return kCuOutOfMemory;
  *address =
      reinterpret_cast<CuDevicePointer>(range.pages) + kPage + room - RoundUp(bytes, kAlignment);
  Protect(*address, range, true);
  std::memset(HostAddress(*address), kNewByte, bytes);
  if (open_ == 0) Protect(*address, range, false);
  device_.emplace(*address, range);
  used_ += room;
  return kCuSuccess;
}

CuResult EmulatedMemory::Free(CuDevicePointer address) {
  const std::lock_guard lock(mutex_);
  const auto at = device_.find(address);
  if (at == device_.end() || at->second.pages == nullptr) return kCuInvalidValue;
  munmap(at->second.pages, at->second.page_bytes);
  used_ -= at->second.page_bytes - 2 * kPage;
  device_.erase(at);
  return kCuSuccess;
}

CuResult EmulatedMemory::AllocatePinned(void** address, size_t bytes) {
  if (bytes == 0) return kCuInvalidValue;
  const size_t room = RoundUp(bytes, kPage);
  void* const pages = MapPages(room, PROT_READ | PROT_WRITE);
  if (pages == nullptr) return kCuOutOfMemory;
  std::memset(pages, kNewByte, bytes);
  const std::lock_guard lock(mutex_);
  pinned_.emplace(reinterpret_cast<CuDevicePointer>(pages),
                  Range{.bytes = bytes, .pages = pages, .page_bytes = room});
  *address = pages;
  return kCuSuccess;
}

CuResult EmulatedMemory::FreePinned(void* address) {
  const std::lock_guard lock(mutex_);
  const auto at = pinned_.find(reinterpret_cast<CuDevicePointer>(address));
  if (at == pinned_.end() || at->second.pages == nullptr) return kCuInvalidValue;
  munmap(at->second.pages, at->second.page_bytes);
  pinned_.erase(at);
  return kCuSuccess;
}

CuResult EmulatedMemory::RegisterPinned(void* address, size_t bytes) {
  const auto begin = reinterpret_cast<CuDevicePointer>(address);
  if (bytes == 0 || begin % kPage != 0 || bytes % kPage != 0) return kCuInvalidValue;
  const std::lock_guard lock(mutex_);
  return pinned_.emplace(begin, Range{.bytes = bytes}).second ? kCuSuccess : kCuInvalidValue;
}

CuResult EmulatedMemory::UnregisterPinned(void* address) {
  const std::lock_guard lock(mutex_);
  const auto at = pinned_.find(reinterpret_cast<CuDevicePointer>(address));
  if (at == pinned_.end() || at->second.pages != nullptr) return kCuInvalidValue;
  pinned_.erase(at);
  return kCuSuccess;
}

CuResult EmulatedMemory::ReserveAddresses(CuDevicePointer* address, size_t bytes) {
  if (bytes == 0 || bytes % kGranularity != 0) return kCuInvalidValue;
  void* const pages = MapPages(bytes, PROT_NONE);
  if (pages == nullptr) return kCuOutOfMemory;
  const std::lock_guard lock(mutex_);
  *address = reinterpret_cast<CuDevicePointer>(pages);
  reserved_.emplace(*address, bytes);
  return kCuSuccess;
}

CuResult EmulatedMemory::FreeAddresses(CuDevicePointer address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = reserved_.find(address);
  if (at == reserved_.end() || at->second != bytes) return kCuInvalidValue;
  const auto mapped = device_.lower_bound(address);
  if (mapped != device_.end() && mapped->first < address + bytes) return kCuInvalidValue;
  munmap(HostAddress(address), bytes);
  reserved_.erase(at);
  return kCuSuccess;
}

CuResult EmulatedMemory::Create(CuMemoryHandle* handle, size_t bytes) {
  if (bytes == 0 || bytes % kGranularity != 0) return kCuInvalidValue;
  const std::lock_guard lock(mutex_);
  if (bytes > total_ - used_) return kCuOutOfMemory;
  used_ += bytes;
  *handle = ++last_handle_;
  physical_.emplace(*handle, Physical{.bytes = bytes});
  return kCuSuccess;
}

// The memory remains as long as it is mapped.
CuResult EmulatedMemory::Release(CuMemoryHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto at = physical_.find(handle);
  if (at == physical_.end() || at->second.released) return kCuInvalidValue;
  at->second.released = true;
  DropIfUnused(handle);
  return kCuSuccess;
}

void EmulatedMemory::DropIfUnused(CuMemoryHandle handle) {
  const auto at = physical_.find(handle);
  if (!at->second.released || at->second.mapped) return;
  used_ -= at->second.bytes;
  physical_.erase(at);
}

CuResult EmulatedMemory::Map(CuDevicePointer address, size_t bytes, CuMemoryHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto physical = physical_.find(handle);
  if (physical == physical_.end() || physical->second.mapped || physical->second.released ||
      physical->second.bytes != bytes) {
    return kCuInvalidValue;
  }
  auto reserved = reserved_.upper_bound(address);
  if (reserved == reserved_.begin()) return kCuInvalidValue;
  --reserved;
  const CuDevicePointer offset = address - reserved->first;
  if (offset % kGranularity != 0 || offset > reserved->second ||
      bytes > reserved->second - offset) {
    return kCuInvalidValue;
  }
  if (Containing(device_, address) != device_.end()) return kCuInvalidValue;
  const Range range{.bytes = bytes, .accessible = false, .handle = handle};
  Protect(address, range, true);
  std::memset(HostAddress(address), kNewByte, bytes);
  Protect(address, range, false);
  device_.emplace(address, range);
  physical->second.mapped = true;
  return kCuSuccess;
}

CuResult EmulatedMemory::Unmap(CuDevicePointer address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = device_.find(address);
  if (at == device_.end() || at->second.handle == 0 || at->second.bytes != bytes) {
    return kCuInvalidValue;
  }
  CHECK(mmap(HostAddress(address), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED);
  const CuMemoryHandle handle = at->second.handle;
  device_.erase(at);
  physical_.at(handle).mapped = false;
  DropIfUnused(handle);
  return kCuSuccess;
}

CuResult EmulatedMemory::AllowAccess(CuDevicePointer address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const CuDevicePointer end = address + bytes;
  while (address < end) {
    const auto at = device_.find(address);
    if (at == device_.end() || at->second.handle == 0) return kCuInvalidValue;
    at->second.accessible = true;
    if (open_ > 0) Protect(address, at->second, true);
    address += at->second.bytes;
  }
  return address == end ? kCuSuccess : kCuInvalidValue;
}

CuResult EmulatedMemory::Adopt(CuDevicePointer address, size_t bytes) {
  if (bytes == 0 || address % kPage != 0) return kCuInvalidValue;
  const std::lock_guard lock(mutex_);
  const Range range{.bytes = bytes, .adopted = true};
  if (!device_.emplace(address, range).second) return kCuInvalidValue;
  if (open_ > 0) Protect(address, range, true);
  return kCuSuccess;
}

CuResult EmulatedMemory::Disown(CuDevicePointer address) {
  const std::lock_guard lock(mutex_);
  const auto at = device_.find(address);
  if (at == device_.end() || !at->second.adopted) return kCuInvalidValue;
  Protect(address, at->second, false);
  device_.erase(at);
  return kCuSuccess;
}

CuResult EmulatedMemory::Locate(CuDevicePointer address, size_t bytes, Residence* residence) const {
  const std::lock_guard lock(mutex_);
  if (const auto pinned = Containing(pinned_, address); pinned != pinned_.end()) {
    *residence = Residence::kPinned;
    const size_t left = pinned->second.bytes - (address - pinned->first);
    return bytes <= left ? kCuSuccess : kCuInvalidValue;
  }
  auto at = Containing(device_, address);
  if (at == device_.end()) {
    *residence = Residence::kPageable;
    const auto reserved = reserved_.upper_bound(address);
    const bool unmapped = reserved != reserved_.begin() &&
                          address - std::prev(reserved)->first < std::prev(reserved)->second;
    return unmapped ? kCuInvalidValue : kCuSuccess;
  }
  *residence = Residence::kDevice;
  for (;;) {  // a range may cover adjacent granules
    if (!at->second.accessible) return kCuInvalidValue;
    const size_t left = at->second.bytes - (address - at->first);
    if (bytes <= left) return kCuSuccess;
    address += left;
    bytes -= left;
    const bool granule = at->second.handle != 0;
    at = device_.find(address);
    if (!granule || at == device_.end() || at->second.handle == 0) return kCuInvalidValue;
  }
}

void EmulatedMemory::Protect(CuDevicePointer address, const Range& range, bool accessible) {
  const CuDevicePointer begin = address / kPage * kPage;
  const CuDevicePointer end = RoundUp(address + range.bytes, kPage);
  CHECK(mprotect(HostAddress(begin), end - begin,
                 accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

void EmulatedMemory::ProtectAll(bool accessible) {
  for (const auto& [address, range] : device_) {
    if (range.accessible) Protect(address, range, accessible);
  }
}

void EmulatedMemory::ProtectRange(CuDevicePointer address, size_t bytes, bool accessible) {
  Residence residence = Residence::kPageable;
  const CuResult located = Locate(address, bytes, &residence);
  if (located != kCuSuccess || residence != Residence::kDevice) return;
  const std::lock_guard lock(mutex_);
  open_ranges_ += accessible ? 1 : -1;
  if (open_ > 0) return;
  if (close_all_ && open_ranges_ == 0) {
    close_all_ = false;
    ProtectAll(false);
  } else {
    Protect(address, {.bytes = bytes}, accessible);
  }
}

void EmulatedMemory::Open() {
  const std::lock_guard lock(mutex_);
  if (open_++ == 0) ProtectAll(true);
}

void EmulatedMemory::Close() {
  const std::lock_guard lock(mutex_);
  if (--open_ > 0) return;
  close_all_ = open_ranges_ > 0;
  if (!close_all_) ProtectAll(false);
}

}  // namespace baton::gpu_emulator
