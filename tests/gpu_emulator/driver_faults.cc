#include "tests/gpu_emulator/driver_faults.h"

#include "kernels/cuda/copy_params.h"

namespace baton::gpu_emulator {

DriverFaults& DriverFaults::Get() {
  static DriverFaults faults;
  return faults;
}

void DriverFaults::Plant(const DriverFault& fault) {
  const std::lock_guard lock(mutex_);
  planted_ = fault;
  calls_ = {};
}

int64_t DriverFaults::calls(DriverCall call) {
  const std::lock_guard lock(mutex_);
  return calls_[static_cast<size_t>(call)];
}

CallFault DriverFaults::FaultOf(DriverCall call) {
  const std::lock_guard lock(mutex_);
  const int64_t index = calls_[static_cast<size_t>(call)]++;
  const bool planted = planted_.call == call && (planted_.index == -1 || planted_.index == index);
  return planted ? planted_.fault : CallFault::kNone;
}

std::vector<std::byte> WithListedFaults(const Kernel& kernel, const std::byte* params,
                                        uint32_t blocks) {
  std::vector<std::byte> given(params, params + kernel.params_bytes);
  if (kernel.name != "baton_copy_small_runs") return given;
  auto* const list = reinterpret_cast<SmallRunsParams*>(given.data());
  for (uint32_t i = 0; i < blocks; ++i) {
    const CallFault fault = DriverFaults::Get().FaultOf(DriverCall::kListedCopy);
    if (fault == CallFault::kLeftOut) list->runs[i].bytes = 0;
  }
  return given;
}

}  // namespace baton::gpu_emulator
