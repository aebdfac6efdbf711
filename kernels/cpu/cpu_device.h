// Device implementation for the CPU: huge-page memory, a thread pool, and kernels chosen by
// instruction set.
//
// Thread safety: CreateCpuDevice is safe from any thread. The device follows the rules of Device.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device.h"
#include "kernels/numerics.h"

namespace baton {

inline constexpr int kMaxCpuThreads = 256;

struct CpuDeviceOptions {
  int threads = 0;  // 1–256; 0: as many as UsableProcessors() allows
  InstructionSet instruction_set = BestInstructionSet();
  Numerics numerics = Numerics::kR1;  // t1 is slow: it defines what GPUs compute
  bool asynchronous = false;          // each stream has its own thread, which counts in `threads`
};

// InvalidArgument: `threads` is out of range, or this processor lacks the instruction set.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace baton
