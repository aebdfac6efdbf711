// The emulated threads of one host thread's launches, with their stacks. They are kept between
// launches, because ThreadSanitizer takes milliseconds to create a fiber.
//
// A stack stays with its fiber, because ThreadSanitizer remembers which thread used which part of
// it.
//
// Thread safety: belongs to one host thread.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "tests/gpu_emulator/fiber.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {

struct Thread;

class FiberPool {
 public:
  FiberPool();
  ~FiberPool();
  // Returns threads `first` to `first + count - 1`. None may be in use.
  std::vector<Thread*> Take(size_t first, size_t count);
  // In whose name kernels read through the read-only cache (Execution::NoteReadOnly).
  SilentThread& read_only() { return read_only_; }

 private:
  SilentThread read_only_;
  std::deque<FiberStacks> stacks_;
  std::vector<std::unique_ptr<Thread>> threads_;  // null: not made yet
};

}  // namespace baton::gpu_emulator
