// Shared memory of one block.
//
// A block starts with NaN patterns in it, in f32, f16, bf16 and e4m3 alike. Margins on both sides
// show writes out of bounds at the block's end; under AddressSanitizer the heap's red zones do.
//
// Thread safety: Start and End belong to the host thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace baton::gpu_emulator {

class SharedBuffer {
 public:
  // Begins a block with `bytes` of fresh contents, aligned to 1024 bytes.
  void Start(uint32_t bytes);
  // Ends the block. Returns false if it wrote outside.
  bool End() const;
  std::byte* data() const { return data_; }
  uint32_t bytes() const { return bytes_; }
  bool contains(const void* address, size_t size) const {
    const auto* first = static_cast<const std::byte*>(address);
    return first >= data_ && first + size <= data_ + bytes_;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_ = nullptr;
  uint32_t bytes_ = 0;
};

}  // namespace baton::gpu_emulator
