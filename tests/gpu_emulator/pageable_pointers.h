// Finds pointers to pageable host memory among the parameters of a launch. The emulator could
// follow them, but most GPUs fail with an illegal address.
//
// A parameter struct does not say which of its fields are pointers. So every aligned word counts
// that has the value of an address where programs have their heap, stacks and mappings, if the
// process can read a byte there. Numbers have such values only by a rare chance.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "kernels/cuda/cuda_driver.h"
#include "tests/gpu_emulator/kernel_registry.h"

namespace baton::gpu_emulator {

// Returns the offset of the first pointer to memory that the process can read and the GPU has no
// access to. params: the kernel's; their padding does not count. is_of_gpu: whether an address is
// in device memory or in pinned memory.
std::optional<size_t> FindPageablePointer(const Kernel& kernel, const std::byte* params,
                                          const std::function<bool(CuDevicePointer)>& is_of_gpu);

}  // namespace baton::gpu_emulator
