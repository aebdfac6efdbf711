#include "kernels/cuda/cuda_device.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/cuda_event.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/nccl_communicator.h"

namespace baton {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaContext> context, std::shared_ptr<CudaMemory> memory,
             std::unique_ptr<CudaKernels> kernels, Numerics numerics)
      : context_(std::move(context)),
        memory_(std::move(memory)),
        kernels_(std::move(kernels)),
        ops_(numerics) {}

  std::string Description() const override {
    return absl::StrFormat(
        "CUDA device %d: %s, compute capability %d.%d, numerics %s, %d multiprocessors, %d MiB, "
        "driver %d.%d",
        context_->index(), context_->name(), context_->compute_capability() / 10,
        context_->compute_capability() % 10, NumericsName(numerics()), context_->multiprocessors(),
        memory_->Info().total >> 20, context_->driver_version() / 1000,
        context_->driver_version() % 1000 / 10);
  }

  std::string_view backend() const override { return "cuda"; }
  Numerics numerics() const override { return ops_.numerics(); }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes,
                                                         std::string_view purpose) override {
    return memory_->Allocate(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(size_t, std::string_view) override {
    return absl::UnimplementedError("other processes cannot map the memory of a CUDA device");
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Reserve(size_t bytes, std::string_view purpose,
                                                        bool shared) override {
    if (shared) return AllocateShared(bytes, purpose);
    return memory_->Reserve(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateStaging(size_t bytes,
                                                                std::string_view purpose) override {
    return memory_->AllocateStaging(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateSharedStaging(
      size_t bytes, std::string_view purpose) override {
    return memory_->AllocateSharedStaging(bytes, purpose);
  }

  size_t allocated_bytes() const override { return memory_->allocated_bytes(); }
  DeviceMemory Memory() const override { return memory_->Info(); }
  absl::Status Health() const override { return context_->Health(); }
  bool asynchronous() const override { return true; }
  bool host_accessible() const override { return false; }
  std::unique_ptr<Stream> CreateStream() override {
    return std::make_unique<CudaStream>(context_, *kernels_, *memory_);
  }
  std::unique_ptr<Event> CreateEvent() override { return std::make_unique<CudaEvent>(context_); }
  const Ops& ops() const override { return ops_; }
  const std::shared_ptr<CudaContext>& context() const { return context_; }

 private:
  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaMemory> memory_;
  const std::unique_ptr<CudaKernels> kernels_;
  const CudaOps ops_;
};

// Tensor cores of different compute capabilities may sum differently. So those that NUMERICS_T1
// does not describe, 8.6 and 8.9 among them, are not used.
absl::StatusOr<Numerics> NumericsOf(const CudaContext& context, std::optional<Numerics> wanted) {
  const int capability = context.compute_capability();
  if (!wanted.has_value()) {
    for (const Numerics t1 : {Numerics::kT1Sm80, Numerics::kT1Sm90}) {
      if (T1ComputeCapability(t1) == capability) return t1;
    }
    return Numerics::kR1;
  }
  if (!IsT1(*wanted) || T1ComputeCapability(*wanted) == capability) return *wanted;
  const int needed = T1ComputeCapability(*wanted);
  return absl::FailedPreconditionError(absl::StrFormat(
      "numerics is \"%s\", which needs compute capability %d.%d, but %s has %d.%d: use auto or r1",
      NumericsName(*wanted), needed / 10, needed % 10, context.name(), capability / 10,
      capability % 10));
}

absl::StatusOr<CudaDriver> LoadDriver(const CudaDeviceOptions& options) {
  absl::StatusOr<CudaDriver> driver = LoadCudaDriver(options.driver_libraries);
  if (driver.ok()) {
    const char* const early = std::getenv("BATON_EARLY_KERNELS");
    if (early != nullptr && std::string_view(early) == "0") driver->LaunchKernelEx = nullptr;
    return driver;
  }
  return absl::UnavailableError(
      StrCat("this machine has no CUDA driver: ", driver.status().message()));
}

absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaDriver& driver,
                                                   const CudaDeviceOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<CudaContext> context, CudaContext::Open(driver, options.index));
  ASSIGN_OR_RETURN(const Numerics numerics, NumericsOf(*context, options.numerics));
  ASSIGN_OR_RETURN(std::unique_ptr<CudaKernels> kernels,
                   CudaKernels::Load(context, options.kernel_library));
  ASSIGN_OR_RETURN(std::shared_ptr<CudaMemory> memory, CudaMemory::Create(context));
  return std::make_unique<CudaDevice>(std::move(context), std::move(memory), std::move(kernels),
                                      numerics);
}

absl::Status CheckDeviceCount(const CudaDriver& driver, int first, int32_t degree) {
  int devices = 0;
  const CuResult started = driver.Init(0);
  const CuResult counted = started == kCuSuccess ? driver.DeviceGetCount(&devices) : started;
  if (counted != kCuSuccess) {
    return absl::UnavailableError(CudaErrorOf(driver, "cuDeviceGetCount", counted).message());
  }
  if (first + degree <= devices) return absl::OkStatus();
  return absl::UnavailableError(StrCat("tensor-parallel is ", degree,
                                       ", which needs as many CUDA devices from device ", first,
                                       " on, but this machine has ", devices));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options) {
  ASSIGN_OR_RETURN(const CudaDriver driver, LoadDriver(options));
  return Create(driver, options);
}

absl::StatusOr<DeviceGroup> CreateCudaDeviceGroup(const CudaDeviceOptions& options,
                                                  const std::vector<std::string>& nccl_libraries,
                                                  int32_t degree) {
  ASSIGN_OR_RETURN(const CudaDriver driver, LoadDriver(options));
  RETURN_IF_ERROR(CheckDeviceCount(driver, options.index, degree));
  const absl::StatusOr<NcclApi> nccl = LoadNccl(nccl_libraries);
  if (!nccl.ok()) {
    return absl::Status(
        nccl.status().code(),
        StrCat("tensor-parallel is ", degree, ", which needs NCCL: ", nccl.status().message()));
  }
  DeviceGroup group;
  std::vector<std::shared_ptr<CudaContext>> contexts;
  for (int32_t rank = 0; rank < degree; ++rank) {
    CudaDeviceOptions of_rank = options;
    of_rank.index += rank;
    ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, Create(driver, of_rank));
    contexts.push_back(device->context());
    group.devices.push_back(std::move(device));
    const Numerics numerics = group.devices.back()->numerics();
    if (numerics == group.devices.front()->numerics()) continue;
    return absl::FailedPreconditionError(
        StrCat("CUDA device ", of_rank.index, " would compute with numerics ",
               NumericsName(numerics), ", and device ", options.index, " with ",
               NumericsName(group.devices.front()->numerics()), ": choose --numerics r1"));
  }
  ASSIGN_OR_RETURN(group.communicators, CreateNcclCommunicators(*nccl, contexts));
  absl::Status reach;
  for (const std::shared_ptr<CudaContext>& context : contexts) {
    reach.Update(context->ReachMemoryOf(*contexts.front()));
  }
  group.reach_first = reach.ok();
  if (!reach.ok()) LOG(INFO) << "transfers of KV pass host memory: " << reach.message();
  return group;
}

}  // namespace baton
