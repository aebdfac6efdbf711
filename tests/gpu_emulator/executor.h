// Runs kernels on a CPU: every CUDA thread of a block is a fiber of the calling host thread.
//
// A CUDA thread runs until it waits: at a barrier, for the other lanes of a warp operation, or for
// an asynchronous copy. The next thread of its warp then goes on, and after it the next warp.
// Nothing depends on time, so a launch with equal rules and inputs takes the same steps.
//
// The executor finds these faults of a kernel:
// - threads that wait for something that cannot happen: the message names where each waits;
// - lanes of a warp that meet in different operations, or threads at different barriers;
// - a wrong mask of a warp operation;
// - more threads in a block than __launch_bounds__ allows;
// - shared memory that is read before it is written: a block starts with NaN patterns in it;
// - writes behind the end of shared memory;
// - addresses that are not aligned, of vectors, atomic operations, copies and matrices
//   (alignment_check.cc; not in a build with ThreadSanitizer);
// - shared memory that the async proxy reads without fence.proxy.async, and barriers that copies
// use
//   without fence.mbarrier_init (shared_buffer.h);
// - registers of wgmma that no fence or wait names, or that change in flight (pending_products.h).
// ThreadSanitizer finds races, also between blocks. A fence of the block orders threads of its
// block only. A read through the read-only cache (__ldg) is ordered with no write of its launch.
// AddressSanitizer finds other accesses out of bounds.
//
// The executor does not model these, so a kernel that depends on them can be wrong on a GPU:
// - Shared memory that a copy overwrites after loads, without a proxy fence between. GPUs order
// both
//   through an mbarrier or a barrier.
// - Which shared memory a thread's own proxy fence covers. A fence shows the async proxy all that
// any
//   thread has stored until then, so a missing fence shows if all threads that store lack theirs,
//   or if one stores later than the others fence.
// - `const __restrict__` pointers, which nvcc may read through the read-only cache. Kernels have
// none.
// - Casts of NaN and of large numbers to integers, which C++ leaves undefined. Kernels call
//   __float2int_rn and its like, which give the GPU's result.
// - Limits of registers: scripts/compile_cuda.sh prints kernels that spill.
// - Weak forms of atomic operations: all are one after another, and only fences order other
// accesses.
//
// Thread safety: an Executor belongs to one host thread. Several may run on different threads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_launch.h"
#include "tests/gpu_emulator/execution_rules.h"
#include "tests/gpu_emulator/kernel_registry.h"

namespace baton::gpu_emulator {

inline constexpr uint32_t kMostThreads = 1024;                                      // of a block
inline constexpr uint32_t kMostSharedBytes = MostSharedBytes(TensorCore::kHopper);  // of a block

class Executor {
 public:
  explicit Executor(const ExecutionRules& rules = {});

  // Runs all blocks and returns. An error says which rule of CUDA the kernel or the launch broke;
  // memory then has what the kernel wrote so far.
  absl::Status Run(const Kernel& kernel, const LaunchShape& shape, const void* params,
                   size_t bytes);

  const ExecutionRules& rules() const { return rules_; }
  // Places ("file:line") of a primitive that the last launch reached, in that order. Numbers of
  // places are those of SkippedPrimitive.
  const std::vector<std::string>& places(Primitive primitive) const;

 private:
  const ExecutionRules rules_;
  std::vector<std::vector<std::string>> places_;
};

}  // namespace baton::gpu_emulator
