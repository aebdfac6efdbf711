// Kernels that may begin before those ahead of them have ended (kernels/cuda/kernel_order.cuh).
//
// The emulator runs kernels one after another, so a kernel that touches memory too early would see
// the right values. It finds such kernels by the rules. These are errors:
// - a thread that ends without WaitForEarlierKernels;
// - a copy, a store of a copy or an atomic operation by a thread before its call, except for
//   LoadConstantBulk;
// - any other access to device memory before the first blocks have called it. Device memory is
//   closed for so long, if the launch has EarlyStart::open_memory. Later blocks run with open
//   memory, so their loads and stores are not checked.
// Copies of constants land after device memory is open.
//
// The emulator does not know which memory is constant: an earlier kernel that writes what
// LoadConstantBulk reads is not found.
//
// Thread safety: as Executor.
#pragma once

#include <cstdint>
#include <functional>

#include "tests/gpu_emulator/source_place.h"

namespace baton::gpu_emulator {

// A launch that may begin early.
struct EarlyStart {
  // Opens device memory, which is closed when the launch begins. Null: it is open.
  std::function<void()> open_memory = nullptr;
};

// The functions of kernel_order.cuh.
void WaitForEarlier(SourcePlace place);
void Prefetch(const void* global, uint32_t bytes, SourcePlace place);

// Makes accesses to closed device memory errors of the launch. Otherwise they end the process.
// Called once or more.
void CatchEarlyAccesses();

}  // namespace baton::gpu_emulator
