// Memory of the emulated GPU: device memory, which the host can reach only through copies, and
// pinned host memory.
//
// Device memory is mapped at its device addresses, but its pages are inaccessible. The emulator
// opens them only while it runs a kernel or a copy (DeviceMemoryAccess). Any other access of the
// host is a segmentation fault. An access behind the end of a buffer, or to a freed buffer, is one
// too. Other processes have no access, because the memory is private.
//
// New memory contains 0xff bytes, which are NaN as floats. Memory of a real GPU contains bytes of
// its last owner.
//
// Thread safety: safe from any thread, except that a buffer must not be freed while work uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "kernels/cuda/cuda_driver.h"

namespace baton::gpu_emulator {

inline constexpr size_t kGranularity = size_t{2} << 20;  // of virtual memory management, as on GPUs

enum class Residence : uint8_t { kDevice, kPinned, kPageable };

class EmulatedMemory {
 public:
  explicit EmulatedMemory(size_t total) : total_(total) {}
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  size_t total() const { return total_; }
  size_t free() const;

  CuResult Allocate(CuDevicePointer* address, size_t bytes);
  CuResult Free(CuDevicePointer address);
  CuResult AllocatePinned(void** address, size_t bytes);
  CuResult FreePinned(void* address);
  // Memory of the caller becomes pinned memory until it is unregistered. Whole pages.
  CuResult RegisterPinned(void* address, size_t bytes);
  CuResult UnregisterPinned(void* address);

  // Virtual memory management. Addresses and sizes are multiples of kGranularity.
  CuResult ReserveAddresses(CuDevicePointer* address, size_t bytes);
  CuResult FreeAddresses(CuDevicePointer address, size_t bytes);
  CuResult Create(CuMemoryHandle* handle, size_t bytes);
  CuResult Release(CuMemoryHandle handle);
  CuResult Map(CuDevicePointer address, size_t bytes, CuMemoryHandle handle);
  CuResult Unmap(CuDevicePointer address, size_t bytes);
  CuResult AllowAccess(CuDevicePointer address, size_t bytes);

  // Returns what holds the range. A range that leaves its buffer, or device memory that may not be
  // accessed, is an error.
  CuResult Locate(CuDevicePointer address, size_t bytes, Residence* residence) const;

  // Adds memory of the caller, which is inaccessible now, to the device memory, or removes it.
  CuResult Adopt(CuDevicePointer address, size_t bytes);
  CuResult Disown(CuDevicePointer address);

  // Makes all device memory accessible until the same number of calls of Close. New memory is
  // opened too.
  void Open();
  void Close();
  // The same for the pages of one range, which takes less time. Memory of the host stays as it is.
  void OpenRange(CuDevicePointer address, size_t bytes) { ProtectRange(address, bytes, true); }
  void CloseRange(CuDevicePointer address, size_t bytes) { ProtectRange(address, bytes, false); }

 private:
  struct Range {
    size_t bytes = 0;
    void* pages = nullptr;  // mapping with its guard pages; null: reserved, adopted or registered
    size_t page_bytes = 0;
    bool accessible = true;  // false: mapped, but AllowAccess is missing
    bool adopted = false;    // the caller owns the pages
    CuMemoryHandle handle = 0;
  };
  struct Physical {
    size_t bytes = 0;
    bool mapped = false;
    bool released = false;
  };

  static void Protect(CuDevicePointer address, const Range& range, bool accessible);
  void ProtectAll(bool accessible);
  void ProtectRange(CuDevicePointer address, size_t bytes, bool accessible);
  void DropIfUnused(CuMemoryHandle handle);

  const size_t total_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  int open_ = 0;
  int open_ranges_ = 0;
  // Close was called while ranges were open: a kernel of a peer ended while this GPU was copying.
  // Everything is closed with the last of these ranges.
  bool close_all_ = false;
  CuMemoryHandle last_handle_ = 0;
  std::map<CuDevicePointer, Range> device_;  // by address
  std::map<CuDevicePointer, Range> pinned_;
  std::map<CuDevicePointer, size_t> reserved_;  // address ranges
  std::map<CuMemoryHandle, Physical> physical_;
};

// Opens all device memory while it exists.
class DeviceMemoryAccess {
 public:
  explicit DeviceMemoryAccess(EmulatedMemory& memory) : memory_(memory) { memory_.Open(); }
  ~DeviceMemoryAccess() { memory_.Close(); }
  DeviceMemoryAccess(const DeviceMemoryAccess&) = delete;
  DeviceMemoryAccess& operator=(const DeviceMemoryAccess&) = delete;

 private:
  EmulatedMemory& memory_;
};

// Opens a range of device memory while it exists.
class DeviceRangeAccess {
 public:
  DeviceRangeAccess(EmulatedMemory& memory, CuDevicePointer address, size_t bytes)
      : memory_(memory), address_(address), bytes_(bytes) {
    memory_.OpenRange(address_, bytes_);
  }
  ~DeviceRangeAccess() { memory_.CloseRange(address_, bytes_); }
  DeviceRangeAccess(const DeviceRangeAccess&) = delete;
  DeviceRangeAccess& operator=(const DeviceRangeAccess&) = delete;

 private:
  EmulatedMemory& memory_;
  const CuDevicePointer address_;
  const size_t bytes_;
};

}  // namespace baton::gpu_emulator
