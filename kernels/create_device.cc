#include "kernels/create_device.h"

#include <algorithm>
#include <optional>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/usable_processors.h"

namespace baton {
namespace {

constexpr char kCpu[] = "cpu";
constexpr char kCpuAsync[] = "cpu-async";
constexpr char kCuda[] = "cuda";

// InvalidArgument: unknown name.
absl::StatusOr<InstructionSet> InstructionSetOf(const std::string& name) {
  if (name == "auto") return BestInstructionSet();
  for (const InstructionSet set :
       {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (InstructionSetName(set) == name) return set;
  }
  return absl::InvalidArgumentError(
      StrCat("instruction-set is \"", name, "\", must be auto, plain, avx2 or avx512"));
}

}  // namespace

std::string KnownDevices() { return StrCat(kCpu, ", ", kCpuAsync, " or ", kCuda); }

absl::Status SettleDeviceOptions(DeviceOptions& options) {
  if (options.name == kCuda) {
    return absl::InvalidArgumentError(StrCat("device is \"", kCuda,
                                             "\", which is not built into this binary: use ", kCpu,
                                             " or ", kCpuAsync));
  }
  if (options.name != kCpu && options.name != kCpuAsync) {
    return absl::InvalidArgumentError(
        StrCat("device is \"", options.name, "\", must be ", KnownDevices()));
  }
  ASSIGN_OR_RETURN(const InstructionSet set, InstructionSetOf(options.instruction_set));
  options.instruction_set = std::string(InstructionSetName(set));
  if (options.threads == 0) options.threads = std::min(UsableProcessors(), kMaxCpuThreads);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(DeviceOptions options) {
  RETURN_IF_ERROR(SettleDeviceOptions(options));
  ASSIGN_OR_RETURN(const InstructionSet set, InstructionSetOf(options.instruction_set));
  return CreateCpuDevice({.threads = options.threads,
                          .instruction_set = set,
                          .asynchronous = options.name == kCpuAsync});
}

}  // namespace baton
