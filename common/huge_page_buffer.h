// Anonymous memory of the process. Large buffers use huge pages if the kernel grants them.
//
// The memory reads as zeros, and a page costs memory only after its first use. Buffers of at least
// 2 MiB start on a 2 MiB boundary and ask for transparent huge pages (MADV_HUGEPAGE). Smaller ones
// start on a 4 KiB boundary.
//
// A reserved buffer is only an address range and may be larger than the host's memory. Pages become
// memory when they are written to, and Discard() gives them back.
//
// Thread safety: as a std::vector's.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "common/mapped_memory.h"

namespace baton {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

class HugePageBuffer {
 public:
  HugePageBuffer() = default;
  // ResourceExhausted names `purpose` and the size. A buffer of 0 bytes is empty, but its data() is
  // not null.
  static absl::StatusOr<HugePageBuffer> Allocate(size_t bytes, std::string_view purpose);
  // As Allocate, but claims no memory. The error means that the address space has no room.
  static absl::StatusOr<HugePageBuffer> Reserve(size_t bytes, std::string_view purpose);

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }            // bytes, as requested
  size_t mapped_bytes() const { return memory_.mapped(); }  // bytes in whole pages
  // Gives the memory of the whole pages in [offset, offset + bytes) back to the system. They read
  // as zeros afterwards. REQUIRES: the range lies in the buffer, and no thread reads or writes
  // there during the call.
  void Discard(size_t offset, size_t bytes);

 private:
  static absl::StatusOr<HugePageBuffer> Map(size_t bytes, std::string_view purpose, int flags);
  explicit HugePageBuffer(MappedMemory memory) : memory_(std::move(memory)) {}

  MappedMemory memory_;
};

// The whole 4 KiB pages in [offset, offset + bytes).
struct PageRange {
  size_t offset = 0;  // where they begin
  size_t bytes = 0;
};
PageRange WholePagesIn(size_t offset, size_t bytes);

// Returns the kernel's mode of transparent huge pages: "always", "madvise", "never" or "unknown".
std::string TransparentHugePageMode();

}  // namespace baton
