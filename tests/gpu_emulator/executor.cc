#include "tests/gpu_emulator/executor.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/fiber_pool.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

constexpr uint32_t kMostGrid[3] = {0x7fffffff, 65535, 65535};  // CUDA's limits
constexpr uint32_t kMostBlock[3] = {1024, 1024, 64};

absl::Status CheckLaunch(const ExecutionRules& rules, const Kernel& kernel,
                         const LaunchShape& shape, size_t bytes) {
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] < 1 || shape.grid[i] > kMostGrid[i]) {
      return absl::InvalidArgumentError(absl::StrCat(
          kernel.name, ": grid[", i, "] is ", shape.grid[i], ", not in [1, ", kMostGrid[i], "]"));
    }
    if (shape.block[i] < 1 || shape.block[i] > kMostBlock[i]) {
      return absl::InvalidArgumentError(absl::StrCat(kernel.name, ": block[", i, "] is ",
                                                     shape.block[i], ", not in [1, ", kMostBlock[i],
                                                     "]"));
    }
  }
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (threads > kMostThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat(kernel.name, ": a block has ", threads, " threads, at most ", kMostThreads));
  }
  if (threads > kernel.most_threads) {
    return absl::InvalidArgumentError(absl::StrCat(kernel.name, ": a block has ", threads,
                                                   " threads, but __launch_bounds__ allows ",
                                                   kernel.most_threads));
  }
  const uint32_t most_shared_bytes = MostSharedBytes(rules.tensor_core);
  if (shape.shared_bytes > most_shared_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(kernel.name, ": ", shape.shared_bytes,
                                                   " bytes of shared memory, at most ",
                                                   most_shared_bytes));
  }
  if (bytes != kernel.params_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel.name, ": ", bytes, " bytes of parameters, its struct has ", kernel.params_bytes));
  }
  return absl::OkStatus();
}

FiberPool& FibersOfHostThread() {
  thread_local FiberPool fibers;
  return fibers;
}

}  // namespace

Executor::Executor(const ExecutionRules& rules) : rules_(rules) {}

absl::Status Executor::Run(const Kernel& kernel, const LaunchShape& shape, const void* params,
                           size_t bytes, const EarlyStart* early) {
  if (absl::Status status = CheckLaunch(rules_, kernel, shape, bytes); !status.ok()) return status;
  FiberPool& fibers = FibersOfHostThread();
  const auto execution =
      std::make_unique<Execution>(rules_, kernel, shape, params, bytes, fibers, early);
  absl::Status status = execution->Start();
  places_.clear();
  for (const auto& places : execution->places()) {
    auto& names = places_.emplace_back();
    for (const SourcePlace place : places) names.push_back(ToString(place));
  }
  return status;
}

const std::vector<std::string>& Executor::places(Primitive primitive) const {
  static const std::vector<std::string> kNone;
  const auto index = static_cast<size_t>(primitive);
  return index < places_.size() ? places_[index] : kNone;
}

}  // namespace baton::gpu_emulator
