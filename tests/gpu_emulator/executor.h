// Runs kernels on a CPU: every CUDA thread of a block is a fiber of the calling host thread.
//
// A CUDA thread runs until it waits: at a barrier, for the other lanes of a warp operation, or for
// an asynchronous copy. Then the next thread of its warp continues, and after all of them the next
// warp. Nothing depends on time, so a launch with equal rules and inputs takes the same steps.
//
// The executor finds these faults of a kernel:
// - threads that wait for something that cannot happen; the message names each waiting place;
// - lanes of a warp that meet in different operations, or threads at different barriers;
// - a wrong mask of a warp operation;
// - a named barrier that the lanes of a warp do not reach together;
// - more threads in a block than __launch_bounds__ allows;
// - reads of shared memory before it is written: a block starts with NaN patterns in it;
// - writes behind the end of shared memory;
// - unaligned addresses of vectors, atomic operations, copies and matrices (alignment_check.cc; not
//   in a build with ThreadSanitizer);
// - shared memory that the async proxy reads without fence.proxy.async (shared_buffer.h);
// - barriers that copies use without fence.mbarrier_init (shared_buffer.h), and a second
//   mbarrier.init of a barrier;
// - asynchronous copies from shared memory, from the stack or from parameters;
// - accesses to memory before WaitForEarlierKernels (early_kernels.h);
// - registers of wgmma that no fence or wait names, or that change in flight (pending_products.h).
//
// ThreadSanitizer finds races, also between blocks. A fence of the block orders only the threads of
// its block. A read through the read-only cache (__ldg) is not ordered with any write of its
// launch. AddressSanitizer finds other accesses out of bounds.
//
// The executor does not model the following, so a kernel that depends on it can be wrong on a GPU:
// - Shared memory that a copy overwrites after loads, without a proxy fence between them. On GPUs,
//   an mbarrier or a barrier orders the loads and the copy.
// - The extent of a thread's own proxy fence. Here a fence shows the async proxy the stores of all
//   threads so far. So tests notice a missing fence only in two cases: all threads that store lack
//   the fence, or one of them stores after the others have fenced.
// - `const __restrict__` pointers, which nvcc may read through the read-only cache. Kernels do not
//   use them.
// - Casts of NaN and of large numbers to integers, which C++ leaves undefined. Kernels call
//   __float2int_rn and similar functions, which give the GPU's result.
// - Limits of registers. scripts/compile_cuda.sh fails if more of them spill.
// - Weak forms of atomic operations. Here atomic operations happen one after another, and only
//   fences order other accesses.
//
// Thread safety: an Executor belongs to one host thread. Several may run on different threads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_launch.h"
#include "tests/gpu_emulator/early_kernels.h"
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
  // `early`: the launch may begin early. Null: earlier kernels have ended, so the kernel need not
  // wait for them.
  absl::Status Run(const Kernel& kernel, const LaunchShape& shape, const void* params, size_t bytes,
                   const EarlyStart* early = nullptr);

  const ExecutionRules& rules() const { return rules_; }
  // Places ("file:line") of a primitive that the last launch reached, in that order.
  const std::vector<std::string>& places(Primitive primitive) const;

 private:
  const ExecutionRules rules_;
  std::vector<std::vector<std::string>> places_;
};

}  // namespace baton::gpu_emulator
