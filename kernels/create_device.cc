#include "kernels/create_device.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/cpu/cpu_communicator.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/usable_processors.h"
#include "kernels/cuda/cuda_device.h"

namespace baton {
namespace {

constexpr char kAuto[] = "auto";
constexpr char kCpu[] = "cpu";
constexpr char kCpuAsync[] = "cpu-async";
constexpr char kCuda[] = "cuda";
constexpr char kCudaEmulated[] = "cuda-emulated";
constexpr char kKernelLibrary[] = "libbaton_cuda_kernels.so";
constexpr char kEmulatorLibrary[] = "libbaton_gpu_emulator.so";
constexpr char kEmulatedNcclLibrary[] = "libbaton_emulated_nccl.so";

// InvalidArgument: unknown name.
absl::StatusOr<InstructionSet> InstructionSetOf(const std::string& name) {
  if (name == kAuto) return BestInstructionSet();
  for (const InstructionSet set : kInstructionSets) {
    if (InstructionSetName(set) == name) return set;
  }
  return absl::InvalidArgumentError(StrCat(
      "instruction-set is \"", name, "\"; must be auto, plain, avx2, avx512-no-vnni or avx512"));
}

// Returns nothing for "auto". InvalidArgument: unknown name.
absl::StatusOr<std::optional<Numerics>> NumericsNamed(const std::string& name) {
  if (name == kAuto) return std::nullopt;
  for (const Numerics numerics : kAllNumerics) {
    if (NumericsName(numerics) == name) return numerics;
  }
  return absl::InvalidArgumentError(
      StrCat("numerics is \"", name, "\"; must be auto, r1, t1-sm80 or t1-sm90"));
}

bool IsCpu(const DeviceOptions& options) {
  return options.name == kCpu || options.name == kCpuAsync;
}

// Returns the path of a library in the folder of the running program.
std::string BesideTheProgram(const char* library) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / library).string();
}

absl::StatusOr<CudaDeviceOptions> CudaOptionsOf(const DeviceOptions& options) {
  const bool emulated = options.name == kCudaEmulated;
  CudaDeviceOptions cuda;
  cuda.driver_libraries = DeviceLibrariesOf(options.name).driver;
  cuda.kernel_library = BesideTheProgram(emulated ? kEmulatorLibrary : kKernelLibrary);
  if (!emulated) cuda.index = *CudaIndexOf(options.name);
  ASSIGN_OR_RETURN(cuda.numerics, NumericsNamed(options.numerics));
  return cuda;
}

// Returns `why` with the name of the device.
absl::Status DeviceError(const DeviceOptions& options, const absl::Status& why) {
  return {why.code(), StrCat("device is \"", options.name, "\": ", why.message())};
}

absl::StatusOr<std::unique_ptr<Device>> CreateCuda(const DeviceOptions& options) {
  ASSIGN_OR_RETURN(const CudaDeviceOptions cuda, CudaOptionsOf(options));
  absl::StatusOr<std::unique_ptr<Device>> device = CreateCudaDevice(cuda);
  if (device.ok()) return device;
  return DeviceError(options, device.status());
}

absl::StatusOr<DeviceGroup> CreateCudaGroup(const DeviceOptions& options, int32_t degree) {
  ASSIGN_OR_RETURN(const CudaDeviceOptions cuda, CudaOptionsOf(options));
  absl::StatusOr<DeviceGroup> group =
      CreateCudaDeviceGroup(cuda, DeviceLibrariesOf(options.name).nccl, degree);
  if (group.ok()) return group;
  return DeviceError(options, group.status());
}

}  // namespace

std::optional<int> CudaIndexOf(std::string_view name) {
  if (name == kCuda) return 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

DeviceLibraries DeviceLibrariesOf(std::string_view name) {
  if (name == kCudaEmulated) {
    return {.driver = {BesideTheProgram(kEmulatorLibrary)},
            .nccl = {BesideTheProgram(kEmulatedNcclLibrary)}};
  }
  return {.driver = {"libcuda.so.1"}, .nccl = {"libnccl.so.2"}};
}

std::string KnownDevices() {
  return StrCat(kCpu, ", ", kCpuAsync, ", ", kCuda, " or ", kCuda, ":N");
}

absl::Status SettleDeviceOptions(DeviceOptions& options) {
  if (!IsCpu(options) && options.name != kCudaEmulated && !CudaIndexOf(options.name)) {
    return absl::InvalidArgumentError(
        StrCat("device is \"", options.name, "\"; must be ", KnownDevices()));
  }
  ASSIGN_OR_RETURN(const InstructionSet set, InstructionSetOf(options.instruction_set));
  options.instruction_set = std::string(InstructionSetName(set));
  RETURN_IF_ERROR(NumericsNamed(options.numerics).status());
  if (IsCpu(options) && options.numerics == kAuto) options.numerics = NumericsName(Numerics::kR1);
  if (options.threads == 0) options.threads = std::min(UsableProcessors(), kMaxCpuThreads);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(DeviceOptions options) {
  RETURN_IF_ERROR(SettleDeviceOptions(options));
  if (!IsCpu(options)) return CreateCuda(options);
  ASSIGN_OR_RETURN(const InstructionSet set, InstructionSetOf(options.instruction_set));
  ASSIGN_OR_RETURN(const std::optional<Numerics> numerics, NumericsNamed(options.numerics));
  return CreateCpuDevice({.threads = options.threads,
                          .instruction_set = set,
                          .numerics = numerics.value_or(Numerics::kR1),
                          .asynchronous = options.name == kCpuAsync});
}

absl::StatusOr<DeviceGroup> CreateDeviceGroup(DeviceOptions options, int32_t degree) {
  RETURN_IF_ERROR(SettleDeviceOptions(options));
  if (degree < 1 || degree > kMaxTensorParallel) {
    return absl::InvalidArgumentError(
        StrCat("tensor-parallel is ", degree, "; it must be in 1 to ", kMaxTensorParallel));
  }
  if (!IsCpu(options)) return CreateCudaGroup(options, degree);
  options.name = kCpuAsync;  // a collective blocks the stream's thread until all ranks are there
  options.threads = std::max(options.threads / degree, 1);
  DeviceGroup group;
  for (int32_t rank = 0; rank < degree; ++rank) {
    ASSIGN_OR_RETURN(group.devices.emplace_back(), CreateDevice(options));
  }
  group.communicators = CreateCpuCommunicators(degree);
  return group;
}

}  // namespace baton
