// The compiled kernels of a device, found by name.
//
// A kernel library is a shared library with the table `baton_cuda_images`: pointers to images for
// cuModuleLoadData, ended by a null pointer. The CUDA build compiles one image from each .cu file.
//
// Thread safety: safe from any thread. The context outlives the functions.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_context.h"

namespace baton {

class CudaKernels {
 public:
  // Loads the images of the library at `path`. Unavailable: no such library, or it has no images.
  // FailedPrecondition: the images do not run on this device.
  static absl::StatusOr<std::unique_ptr<CudaKernels>> Load(std::shared_ptr<CudaContext> context,
                                                           const std::string& path);
  ~CudaKernels();
  CudaKernels(const CudaKernels&) = delete;
  CudaKernels& operator=(const CudaKernels&) = delete;

  // Returns the kernel, which may then be launched with `shared_bytes` of dynamic shared memory.
  // NotFound: no image has it. InvalidArgument: the device has less shared memory for a block.
  absl::StatusOr<CuFunction> Find(std::string_view name, uint32_t shared_bytes);

 private:
  struct Kernel {
    CuFunction function = nullptr;
    uint32_t shared_bytes = 0;  // as many may be used
  };

  explicit CudaKernels(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}
  absl::StatusOr<Kernel*> LookUp(std::string_view name);

  const std::shared_ptr<CudaContext> context_;
  std::vector<CuModule> modules_;
  std::mutex mutex_;
  absl::flat_hash_map<std::string, Kernel> kernels_;  // those found so far; guarded by mutex_
};

}  // namespace baton
