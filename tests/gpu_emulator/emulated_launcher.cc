#include "tests/gpu_emulator/emulated_launcher.h"

#include <glog/logging.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/tensor_map.h"

namespace baton::gpu_emulator {

EmulatedLauncher::EmulatedLauncher(const ExecutionRules& rules, int multiprocessors)
    : executor_(rules), multiprocessors_(multiprocessors) {}

void EmulatedLauncher::Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
                              size_t bytes) {
  const Kernel* found = FindKernel(kernel);
  CHECK(found != nullptr) << "no kernel is named " << kernel;
  const EarlyStart early;
  const absl::Status status = executor_.Run(*found, shape, params, bytes, &early);
  CHECK(status.ok()) << status.message();
}

std::byte* EmulatedLauncher::Workspace(std::string_view purpose, size_t bytes) {
  constexpr size_t kAlignment = 256;
  Scratch& scratch = scratch_[std::string(purpose)];
  if (scratch.memory == nullptr || bytes > scratch.bytes) {
    outgrown_.push_back(std::move(scratch));
    void* memory = nullptr;
    CHECK_EQ(posix_memalign(&memory, kAlignment, bytes), 0);
    std::memset(memory, 0, bytes);
    scratch = {std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(memory)), bytes};
  }
  return scratch.memory.get();
}

bool EmulatedLauncher::EncodeTiles(const TiledTensor& tensor, TensorMap& map) {
  const absl::StatusOr<TensorMap> encoded = EncodeTensorMap(tensor);
  if (encoded.ok()) map = *encoded;
  return encoded.ok();
}

}  // namespace baton::gpu_emulator
