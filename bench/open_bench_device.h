// Opens a device with the kernels of cuda_bench, which are in the tests' library beside the
// program.
//
// Thread safety: a pure function.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/device.h"

namespace baton {

// Opens cuda, cuda:N or cuda-emulated. Errors: those of CreateCudaDevice.
inline absl::StatusOr<std::unique_ptr<Device>> OpenBenchDevice(const std::string& name,
                                                               std::optional<Numerics> numerics) {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  CudaDeviceOptions options;
  options.numerics = numerics;
  if (name == "cuda-emulated") {
    options.kernel_library = folder / "libbaton_gpu_emulator.so";
    options.driver_libraries = {options.kernel_library};
  } else {
    options.kernel_library = folder / "libbaton_cuda_test_kernels.so";
    if (name.starts_with("cuda:")) options.index = std::atoi(name.c_str() + 5);
  }
  return CreateCudaDevice(options);
}

}  // namespace baton
