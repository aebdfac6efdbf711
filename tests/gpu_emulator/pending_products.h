// One thread's matrix products of a warpgroup (wgmma), and the registers that fences and waits
// name.
//
// nvcc may move an access to a product's registers across a fence or a wait that does not name
// them. So these are errors:
// - a product whose registers no fence named, or that changed since the fence;
// - a wait that does not name the registers that it releases.
//
// Thread safety: belongs to the fiber of its CUDA thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <vector>

namespace baton::gpu_emulator {

// Registers of one thread: an array of the kernel.
struct RegisterRange {
  const void* address = nullptr;
  size_t bytes = 0;
  bool contains(const RegisterRange& other) const {
    const auto* first = static_cast<const std::byte*>(address);
    const auto* others = static_cast<const std::byte*>(other.address);
    return others >= first && others + other.bytes <= first + bytes;
  }
};
using NamedRegisters = std::initializer_list<RegisterRange>;

// One thread's view.
class PendingProducts {
 public:
  uint64_t issued() const { return issued_; }
  uint64_t waited() const { return waited_; }
  // The next product has these registers; those of `a` may be none. Returns an error message, or
  // "".
  const char* Issue(const RegisterRange& sums, const RegisterRange& a);
  void Fence(NamedRegisters registers);
  void Commit() { groups_.push_back(issued_); }
  // Returns the number of products that are in all but the newest `groups` groups.
  uint64_t Before(uint32_t groups) const;
  // The first `products` products are done. Returns an error message, or "".
  const char* Wait(uint64_t products, NamedRegisters registers);
  // Notes the values of registers that may have changed in a product.
  void Remember(NamedRegisters registers);

 private:
  struct Operands {
    RegisterRange sums, a;
  };
  struct FencedRange {
    RegisterRange range;
    std::vector<std::byte> values;  // that a product may start with
  };
  const char* CheckFenced(const RegisterRange& range) const;

  uint64_t issued_ = 0;
  uint64_t waited_ = 0;
  std::vector<uint64_t> groups_;  // products issued before each commit
  std::deque<Operands> open_;     // of products waited_ to issued_ - 1
  std::vector<FencedRange> fenced_;
};

}  // namespace baton::gpu_emulator
