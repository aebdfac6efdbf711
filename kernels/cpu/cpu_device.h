// The CPU as a Device: huge-page memory, a thread pool, ops by instruction set.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device.h"

namespace baton {

inline constexpr int kMaxCpuThreads = 256;

struct CpuDeviceOptions {
  int threads = 0;  // 1–256; 0: as many as the process may run on
  InstructionSet instruction_set = BestInstructionSet();
  bool asynchronous = false;  // each stream runs on a thread of its own, which is one of `threads`
};

// InvalidArgument: threads out of range, or an instruction set that this processor lacks (named).
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace baton
