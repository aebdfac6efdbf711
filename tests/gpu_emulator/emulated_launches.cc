// The driver's functions that launch kernels. emulated_driver.cc has the others.
#include <glog/logging.h>

#include <type_traits>

#include "kernels/cuda/cuda_driver.h"
#include "tests/gpu_emulator/driver_faults.h"
#include "tests/gpu_emulator/emulated_gpu.h"
#include "tests/gpu_emulator/pageable_pointers.h"

namespace baton::gpu_emulator {
namespace {

constexpr uint32_t kMostGridYz = 65535;

// The GPU of the current context.
EmulatedGpu& Gpu() { return EmulatedGpu::Current(); }

bool IsLegal(const EmulatedFunction& function, const CuLaunchConfig& config) {
  const auto& [grid_x, grid_y, grid_z] = config.grid;
  const uint64_t threads = uint64_t{config.block[0]} * config.block[1] * config.block[2];
  return grid_x != 0 && grid_y != 0 && grid_z != 0 && grid_x <= INT32_MAX &&
         grid_y <= kMostGridYz && grid_z <= kMostGridYz && threads != 0 &&
         threads <= function.kernel->most_threads && config.block[2] <= 64 &&
         config.shared_bytes <= function.max_shared_bytes;
}

// Sets `early` if the attributes allow the kernel to begin early.
CuResult ReadAttributes(const CuLaunchConfig& config, bool& early) {
  for (unsigned int i = 0; i < config.attribute_count; ++i) {
    const CuLaunchAttribute& attribute = config.attributes[i];
    if (attribute.id != kCuLaunchProgrammaticSerialization) return kCuInvalidValue;
    early = attribute.allowed != 0;
  }
  return early && Gpu().compute_capability() < 90 ? kCuNotSupported : kCuSuccess;
}

}  // namespace

extern "C" {

CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunction function, void** params,
                          void** extra) {
  if (const CuResult usable = Gpu().Usable(); usable != kCuSuccess) return usable;
  const EmulatedFunction* const found = Gpu().FunctionOf(function);
  if (found == nullptr) return kCuInvalidHandle;
  if (!IsLegal(*found, *config) || extra != nullptr) return kCuInvalidValue;
  bool early = false;
  if (const CuResult read = ReadAttributes(*config, early); read != kCuSuccess) return read;
  const CallFault fault = DriverFaults::Get().FaultOf(DriverCall::kLaunch);
  if (fault == CallFault::kLeftOut) return kCuSuccess;
  const auto* const begin = static_cast<const std::byte*>(params[0]);
  const auto pageable = FindPageablePointer(*found->kernel, begin, [](CuDevicePointer address) {
    Residence residence = Residence::kPageable;
    return Gpu().Locate(address, 1, &residence) != kCuSuccess || residence != Residence::kPageable;
  });
  if (pageable) {
    LOG(ERROR) << "kernel " << found->kernel->name << ": byte " << *pageable
               << " of the parameters begins a pointer to pageable host memory";
    return kCuIllegalAddress;
  }
  const auto& [grid_x, grid_y, grid_z] = config->grid;
  const auto& [block_x, block_y, block_z] = config->block;
  return Gpu().Enqueue(config->stream, {.kind = Work::Kind::kKernel,
                                        .kernel = found->kernel,
                                        .shape = {.grid = {grid_x, grid_y, grid_z},
                                                  .block = {block_x, block_y, block_z},
                                                  .shared_bytes = config->shared_bytes},
                                        .params = WithListedFaults(*found->kernel, begin, grid_x),
                                        .early = early,
                                        .late = fault == CallFault::kLate});
}

CuResult cuLaunchKernel(CuFunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CuStream stream,
                        void** params, void** extra) {
  const CuLaunchConfig config = {.grid = {grid_x, grid_y, grid_z},
                                 .block = {block_x, block_y, block_z},
                                 .shared_bytes = shared_bytes,
                                 .stream = stream};
  return cuLaunchKernelEx(&config, function, params, extra);
}

}  // extern "C"

// Each function has the type that the table has.
#define BATON_SAME_TYPE(member, name) \
  static_assert(std::is_same_v<decltype(&name), decltype(CudaDriver::member)>);
BATON_CUDA_NEWER_FUNCTIONS(BATON_SAME_TYPE)
BATON_SAME_TYPE(LaunchKernel, cuLaunchKernel)
#undef BATON_SAME_TYPE

}  // namespace baton::gpu_emulator
