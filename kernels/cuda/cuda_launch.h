// Launches kernels by name. The host code of each op (launch_*.cc) uses this interface. CudaStream
// implements it for a GPU, and the emulator's launcher in tests/gpu_emulator/ runs a kernel at
// once.
//
// Thread safety: a launcher belongs to one thread at a time, as a Stream does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/cuda/tiled_tensor.h"

namespace baton {

// Size of a launch, as in CUDA: grid in thread blocks, block in threads. A grid is as wide as the
// sizes of ops, so that a size beyond CUDA's limits is an error and never wraps around.
struct LaunchShape {
  int64_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;  // dynamic shared memory of each thread block
};

// InvalidArgument names the kernel, the size and CUDA's limit.
absl::Status CheckLaunch(std::string_view kernel, const LaunchShape& shape);

class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;

  // Enqueues `kernel`, the name of an extern "C" function such as "baton_rms_norm". `params` is its
  // only parameter, a struct of `bytes` bytes, which is copied. A shape without thread blocks
  // enqueues nothing. A shape beyond CUDA's limits makes the device fail (CheckLaunch).
  virtual void Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
                      size_t bytes) = 0;
  // Number of multiprocessors of the device.
  virtual int multiprocessors() const = 0;
  // Shared memory of a thread block in bytes: the limit of LaunchShape::shared_bytes.
  virtual uint32_t max_shared_bytes() const = 0;
  // Returns device memory of at least `bytes` bytes for scratch data of `purpose`, a name such as
  // "attention states". It is aligned to 256 bytes. Only launches of this launcher use it, so
  // stream order separates their uses. The memory is zero when it is first returned. It keeps its
  // address and contents until a larger size is requested: then new, zeroed memory is returned, and
  // the old memory stays valid for the launches that use it. Null: there is no memory. The device
  // has then failed, and the caller enqueues nothing.
  virtual std::byte* Workspace(std::string_view purpose, size_t bytes) = 0;
  // Describes a tensor for the tile copies of a kernel (LoadTile of hopper.cuh). Returns false if
  // this launcher has no tile copies, or the driver refuses the tensor: the kernel then copies
  // without them.
  virtual bool EncodeTiles(const TiledTensor& tensor, TensorMap& map) {
    (void)tensor;
    (void)map;
    return false;
  }
};

}  // namespace baton
