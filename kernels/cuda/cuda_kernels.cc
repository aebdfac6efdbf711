#include "kernels/cuda/cuda_kernels.h"

#include "common/check.h"
#include "common/shared_library.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// A kernel may use this much without asking for more (CUDA C++ Programming Guide).
constexpr uint32_t kDefaultSharedBytes = 48 << 10;

// A multiprocessor divides one memory between shared memory and the L1 cache. Kernels get as much
// shared memory as possible, for two reasons. The speed of several kernels needs two to four
// resident blocks, and the driver may choose a division with room for fewer. And all kernels have
// the same division, so it never changes between two kernels of a step. Predicted, not measured:
// the cache that is left, 28 KiB on compute capability 9.0, is enough.
constexpr int kSharedCarveoutPercent = 100;

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernels>> CudaKernels::Load(std::shared_ptr<CudaContext> context,
                                                               const std::string& path) {
  SharedLibrary library({path});
  const void* const* images = nullptr;
  library.Find("baton_cuda_images", images);
  if (!library.status().ok()) {
    return absl::UnavailableError(
        StrCat("the kernels of the CUDA build (cmake --preset cuda) are missing: ",
               library.status().message()));
  }
  std::unique_ptr<CudaKernels> kernels(new CudaKernels(std::move(context)));
  CudaContext& cuda = *kernels->context_;
  for (; *images != nullptr; ++images) {
    CuModule module = nullptr;
    const CuResult result = cuda.Enter().ModuleLoadData(&module, *images);
    if (result == kCuNoBinaryForGpu) {
      return absl::FailedPreconditionError(
          StrCat("the kernels in ", path, " do not run on ", cuda.name(), " (compute capability ",
                 cuda.compute_capability() / 10, ".", cuda.compute_capability() % 10, ")"));
    }
    RETURN_IF_ERROR(cuda.Check("cuModuleLoadData", result));
    kernels->modules_.push_back(module);
  }
  return kernels;
}

CudaKernels::~CudaKernels() {
  const CudaDriver& driver = context_->Enter();
  for (const CuModule module : modules_) driver.ModuleUnload(module);
}

absl::StatusOr<CudaKernels::Kernel*> CudaKernels::LookUp(std::string_view name) {
  const absl::string_view key(name.data(), name.size());
  if (const auto known = kernels_.find(key); known != kernels_.end()) return &known->second;
  const std::string terminated(name);
  Kernel kernel{.shared_bytes = kDefaultSharedBytes};
  for (const CuModule module : modules_) {
    const CuResult result =
        context_->Enter().ModuleGetFunction(&kernel.function, module, terminated.c_str());
    if (result == kCuNotFound) continue;
    RETURN_IF_ERROR(context_->Check("cuModuleGetFunction", result));
    RETURN_IF_ERROR(context_->Check(
        "cuFuncSetAttribute", context_->Enter().FuncSetAttribute(kernel.function, kCuSharedCarveout,
                                                                 kSharedCarveoutPercent)));
    VLOG(1) << "first use of kernel " << name;
    return &kernels_.try_emplace(terminated, kernel).first->second;
  }
  return absl::NotFoundError(StrCat("the kernel library has no kernel \"", name, "\""));
}

absl::StatusOr<CuFunction> CudaKernels::Find(std::string_view name, uint32_t shared_bytes) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Kernel* const kernel, LookUp(name));
  if (shared_bytes > kernel->shared_bytes) {
    if (shared_bytes > static_cast<uint32_t>(context_->max_shared_bytes())) {
      return absl::InvalidArgumentError(StrCat("kernel \"", name, "\" needs ", shared_bytes,
                                               " bytes of shared memory, but a thread block of ",
                                               context_->name(), " has ",
                                               context_->max_shared_bytes()));
    }
    RETURN_IF_ERROR(context_->Check(
        "cuFuncSetAttribute",
        context_->Enter().FuncSetAttribute(kernel->function, kCuMaxDynamicSharedBytes,
                                           static_cast<int>(shared_bytes))));
    kernel->shared_bytes = shared_bytes;
  }
  return kernel->function;
}

}  // namespace baton
