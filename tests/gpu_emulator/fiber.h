// A fiber has its own stack and the point at which its code continues.
//
// A switch saves the callee-saved registers of the System V ABI for x86-64 and changes the stack
// pointer. Rounding modes are not saved, because kernels do not change them. AddressSanitizer and
// ThreadSanitizer are told of each switch. For ThreadSanitizer every fiber is a thread, and a
// switch orders nothing.
//
// Thread safety: a fiber runs only on the host thread that created it.
#pragma once

#include <cstddef>

#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {

// Memory for stacks, each above a page that traps. Stacks begin at different offsets of a page.
// Otherwise the first lines of all stacks would share one set of the first-level cache.
class FiberStacks {
 public:
  explicit FiberStacks(size_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  std::byte* low(size_t index) const;   // lowest byte of a stack
  std::byte* high(size_t index) const;  // a stack grows down from here; aligned to 16
  size_t count() const { return count_; }

 private:
  const size_t count_;
  std::byte* memory_;
};

class Fiber {
 public:
  Fiber();  // stands for the code that runs now, on the host thread's own stack
  // The first switch to the fiber calls `entry(argument)`, which never returns.
  Fiber(std::byte* stack_low, std::byte* stack_high, void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves the running fiber `from` and continues `to`. Returns when a fiber switches to `from`.
  static void Switch(Fiber& from, Fiber& to);
  // Called first by `entry`.
  void Entered();
  // Whether the address is on the fiber's own stack.
  bool Owns(const void* address) const {
    const auto* const byte = static_cast<const std::byte*>(address);
    return byte >= stack_low_ && byte < stack_low_ + stack_bytes_;
  }

 private:
  void* stack_pointer_ = nullptr;
  const std::byte* stack_low_ = nullptr;
  size_t stack_bytes_ = 0;
  void* thread_sanitizer_fiber_ = nullptr;
  bool owns_sanitizer_fiber_ = false;
};

}  // namespace baton::gpu_emulator
