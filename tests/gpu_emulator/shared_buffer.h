// Shared memory of one block.
//
// When a block starts, its shared memory contains bytes that are NaN in f32, f16, bf16 and e4m3.
// Margins on both sides show writes out of bounds when the block ends. Under AddressSanitizer, the
// heap's red zones replace the margins.
//
// Bulk copies, tile copies and wgmma access shared memory through the async proxy, but loads and
// stores do not (PTX ISA, "Proxies"). The async proxy sees a store only after fence.proxy.async. So
// the buffer has a second copy of its contents, as the async proxy sees them.
//
// Thread safety: Start and End belong to the host thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace baton::gpu_emulator {

class SharedBuffer {
 public:
  // Begins a block with `bytes` of fresh contents, aligned to 1024 bytes.
  void Start(uint32_t bytes);
  // Ends the block. Returns false if it wrote outside.
  bool End() const;
  // The async proxy sees all that is stored now.
  void FenceAsyncProxy();
  // Copies into shared memory through the async proxy. `to` is in shared memory.
  void StoreAsync(std::byte* to, const void* from, size_t size);
  // Returns true if the async proxy sees what the bytes are.
  bool AsyncProxySees(const void* address, size_t size);

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
  void MakeAsyncView();

  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::byte> async_view_;  // empty: the block has not used the async proxy
  std::byte* data_ = nullptr;
  uint32_t bytes_ = 0;
};

}  // namespace baton::gpu_emulator
