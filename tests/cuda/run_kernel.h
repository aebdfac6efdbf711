// Runs a function of a test as a kernel, without a name in the registry.
#pragma once

#include "absl/status/status.h"
#include "tests/gpu_emulator/executor.h"

namespace baton {

template <auto kFunction, typename Params>
absl::Status RunAsKernel(gpu_emulator::Executor& executor, const LaunchShape& shape,
                         const Params& params) {
  static const gpu_emulator::Kernel kKernel = {"test_kernel", sizeof(Params),
                                               &gpu_emulator::RunKernel<Params, kFunction>};
  return executor.Run(kKernel, shape, &params, sizeof(Params));
}

}  // namespace baton
