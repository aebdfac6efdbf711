// Anonymous memory of the process, in huge pages where it is large and the kernel grants them.
//
// Zero-filled; a page costs memory only once it is touched. Sizes from 2 MiB start on a 2 MiB
// boundary and ask for transparent huge pages (MADV_HUGEPAGE); smaller ones start on a 4 KiB
// boundary.
//
// Thread safety: as a std::vector's.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

class HugePageBuffer {
 public:
  HugePageBuffer() = default;
  // ResourceExhausted names `purpose` and the size. 0 bytes give an empty buffer that is not null.
  static absl::StatusOr<HugePageBuffer> Allocate(size_t bytes, std::string_view purpose);
  ~HugePageBuffer();
  HugePageBuffer(HugePageBuffer&& other) noexcept;
  HugePageBuffer& operator=(HugePageBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }            // bytes, as asked for
  size_t mapped_bytes() const { return mapped_; }  // in whole pages

 private:
  HugePageBuffer(std::byte* data, size_t size, size_t mapped)
      : data_(data), size_(size), mapped_(mapped) {}

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
};

// What the kernel says of transparent huge pages: "always", "madvise", "never" or "unknown".
std::string TransparentHugePageMode();

}  // namespace baton
