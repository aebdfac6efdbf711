// Owner of a memory mapping of this process. It unmaps the memory when it is destroyed. Page
// buffers are built on it.
//
// Thread safety: as a std::vector's.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace baton {

class MappedMemory {
 public:
  MappedMemory() = default;
  // Takes ownership of `mapped` bytes that mmap returned. The caller asked for `size` of them.
  MappedMemory(std::byte* data, size_t size, size_t mapped)
      : data_(data), size_(size), mapped_(mapped) {}
  ~MappedMemory() {
    if (data_ != nullptr) munmap(data_, mapped_);
  }
  MappedMemory(MappedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }      // bytes, as requested
  size_t mapped() const { return mapped_; }  // bytes in whole pages

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
};

}  // namespace baton
