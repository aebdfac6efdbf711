// Rules by which the emulator runs a kernel where CUDA leaves a choice, and the faults that it can
// plant.
//
// CUDA does not define the order of blocks, warps and lanes. It also does not define when an
// asynchronous copy lands. A correct kernel gives the same bytes under all rules.
#pragma once

#include <cstdint>
#include <string>

namespace baton::gpu_emulator {

// Order of the blocks of a grid, of the warps of a block and of the lanes of a warp.
enum class ExecutionOrder : uint8_t { kForward, kReverse, kSeeded };

// When an asynchronous copy reads its source and writes its target.
enum class CopyLanding : uint8_t {
  kLate,    // when the kernel waits for it, as late as CUDA allows
  kEarly,   // when the kernel issues it
  kSeeded,  // either of the two, drawn for each copy
};

// Tensor cores differ in how they sum the products of bf16 and f16. kAmpere also has neither the
// instructions of kernels/cuda/hopper.cuh nor Hopper's shared memory: a kernel that uses them
// fails.
enum class TensorCore : uint8_t { kHopper, kAmpere };
// Shared memory of a thread block in bytes, of compute capability 9.0 and 8.0.
constexpr uint32_t MostSharedBytes(TensorCore core) {
  return (core == TensorCore::kHopper ? 227u : 163u) << 10;
}

// Primitives that a kernel needs for its order of memory accesses.
enum class Primitive : uint8_t {
  kNone,
  kBlockBarrier,      // __syncthreads, named barriers
  kWarpBarrier,       // __syncwarp
  kFence,             // __threadfence and its variants
  kCopyWait,          // WaitCopies
  kMbarrierWait,      // the wait returns at once
  kMatrixWait,        // WaitMatrixProducts
  kMatrixFence,       // FenceMatrixRegisters
  kProxyFence,        // FenceProxyAsync
  kBarrierInitFence,  // FenceBarrierInit
  kBulkStoreWait,     // WaitBulkStores
  kKernelWait,        // WaitForEarlierKernels
};

// A planted fault: every execution of a primitive at one place of the source does nothing.
struct SkippedPrimitive {
  Primitive primitive = Primitive::kNone;
  std::string place = "";  // "file:line", as Executor::places gives it
};

struct ExecutionRules {
  ExecutionOrder order = ExecutionOrder::kForward;
  CopyLanding landing = CopyLanding::kLate;
  uint64_t seed = 1;
  // Blocks that are in progress at a time. A kernel whose blocks wait for each other needs all.
  int resident_blocks = 1;
  TensorCore tensor_core = TensorCore::kHopper;
  SkippedPrimitive skipped = {};
};

}  // namespace baton::gpu_emulator
