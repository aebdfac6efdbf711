// Anonymous memory of the process, in huge pages where it is large and the kernel grants them.
//
// Zero-filled; a page costs memory only once it is touched. Sizes from 2 MiB start on a 2 MiB
// boundary and ask for transparent huge pages (MADV_HUGEPAGE); smaller ones start on a 4 KiB
// boundary.
//
// A reserved buffer is an address range alone, which may be larger than the host's memory: what is
// written to becomes memory, and Discard gives it back.
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
  // ResourceExhausted names `purpose` and the size. 0 bytes give an empty buffer that is not null.
  static absl::StatusOr<HugePageBuffer> Allocate(size_t bytes, std::string_view purpose);
  // The same, yet without a claim on memory. The error means that the address space has no room.
  static absl::StatusOr<HugePageBuffer> Reserve(size_t bytes, std::string_view purpose);

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }            // bytes, as asked for
  size_t mapped_bytes() const { return memory_.mapped(); }  // in whole pages
  // Gives the memory of the whole pages in [offset, offset + bytes) back; they read as zeros.
  // REQUIRES: in the buffer, and nobody reads or writes there meanwhile.
  void Discard(size_t offset, size_t bytes);

 private:
  static absl::StatusOr<HugePageBuffer> Map(size_t bytes, std::string_view purpose, int flags);
  explicit HugePageBuffer(MappedMemory memory) : memory_(std::move(memory)) {}

  MappedMemory memory_;
};

// The whole 4 KiB pages in [offset, offset + bytes): where they begin, and how many bytes they are.
struct PageRange {
  size_t offset = 0;
  size_t bytes = 0;
};
PageRange WholePagesIn(size_t offset, size_t bytes);

// What the kernel says of transparent huge pages: "always", "madvise", "never" or "unknown".
std::string TransparentHugePageMode();

}  // namespace baton
