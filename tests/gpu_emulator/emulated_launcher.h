// A KernelLauncher whose kernels run at once, on host memory. Ends the program with a message if a
// kernel breaks a rule of CUDA, or if a name is unknown.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/cuda_launch.h"
#include "tests/gpu_emulator/executor.h"

namespace baton::gpu_emulator {

class EmulatedLauncher : public KernelLauncher {
 public:
  explicit EmulatedLauncher(const ExecutionRules& rules = {}, int multiprocessors = 3);

  void Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
              size_t bytes) override;
  int multiprocessors() const override { return multiprocessors_; }
  uint32_t max_shared_bytes() const override {
    return MostSharedBytes(executor_.rules().tensor_core);
  }
  std::byte* Workspace(std::string_view purpose, size_t bytes) override;
  bool EncodeTiles(const TiledTensor& tensor, TensorMap& map) override;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Scratch {
    std::unique_ptr<std::byte, Free> memory;
    size_t bytes = 0;
  };

  Executor executor_;
  const int multiprocessors_;
  std::map<std::string, Scratch, std::less<>> scratch_;  // by purpose
  std::vector<Scratch> outgrown_;
};

}  // namespace baton::gpu_emulator
