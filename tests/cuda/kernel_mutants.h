// Planted faults of kernels: every primitive at every place does nothing, one at a time. Each fault
// must be caught by the oracle that is meant to.
//
// A letter for each place says which oracle that is:
//   b  the result is wrong, or an access leaves the process's memory. What a thread reads too early
//      depends on what was in memory; it can also be an index that breaks a rule of CUDA
//   r  the emulator reports a broken rule of CUDA
//   d  no thread can continue, or the kernel does not end
//   R  ThreadSanitizer, for sure: whether the result also changes depends on what is in memory
//   =  nothing: the place orders nothing in this launch, or another place orders the same (a
//      comment says why)
//   -  none: this launch does not show the fault (a comment says which launch does)
// Builds without sanitizers run all faults, each in a process of its own. They cannot tell R from
// =. Builds with ThreadSanitizer run the faults of barriers and fences that are marked R, which
// must be data races, and =, which must not be.
//
// Thread safety: belongs to the main thread.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_launch.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/sanitizers.h"
#include "tests/gpu_emulator/tensor_map.h"

namespace baton {

// A launcher that keeps the first error instead of ending the program. Kernels whose name contains
// `mutated` run on `executor`, the others without a fault.
class MutantLauncher : public KernelLauncher {
 public:
  explicit MutantLauncher(gpu_emulator::Executor& executor, std::string_view mutated = "")
      : executor_(executor), mutated_(mutated) {}
  void Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
              size_t bytes) override {
    if (!status_.ok()) return;
    gpu_emulator::Executor& executor =
        kernel.find(mutated_) != std::string_view::npos ? executor_ : faultless_;
    const gpu_emulator::EarlyStart early;
    status_ = executor.Run(*gpu_emulator::FindKernel(kernel), shape, params, bytes, &early);
  }
  int multiprocessors() const override { return 1; }
  uint32_t max_shared_bytes() const override { return gpu_emulator::kMostSharedBytes; }
  std::byte* Workspace(std::string_view purpose, size_t bytes) override {
    std::vector<uint64_t>& words = workspaces_[std::string(purpose)];
    if (words.size() < 2 * (bytes / 16 + 1)) words.resize(2 * (bytes / 16 + 1));
    return reinterpret_cast<std::byte*>(words.data());
  }
  bool EncodeTiles(const TiledTensor& tensor, TensorMap& map) override {
    const absl::StatusOr<TensorMap> encoded = gpu_emulator::EncodeTensorMap(tensor);
    if (encoded.ok()) map = *encoded;
    return encoded.ok();
  }
  const absl::Status& status() const { return status_; }

 private:
  gpu_emulator::Executor& executor_;
  gpu_emulator::Executor faultless_;
  const std::string_view mutated_;
  std::map<std::string, std::vector<uint64_t>> workspaces_;
  absl::Status status_;
};

struct MutatedKernel {
  const char* name;
  // Returns an error if the kernel broke a rule; absl::DataLossError if its result is wrong.
  absl::Status (*run)(gpu_emulator::Executor&);
  // By primitive, a letter for each place that the kernel reaches.
  std::map<gpu_emulator::Primitive, std::string> oracles;
};

inline void PrintTo(const MutatedKernel& kernel, std::ostream* out) { *out << kernel.name; }

inline const std::pair<gpu_emulator::Primitive, const char*> kMutatedPrimitives[] = {
    {gpu_emulator::Primitive::kBlockBarrier, "kBlockBarrier"},
    {gpu_emulator::Primitive::kWarpBarrier, "kWarpBarrier"},
    {gpu_emulator::Primitive::kFence, "kFence"},
    {gpu_emulator::Primitive::kCopyWait, "kCopyWait"},
    {gpu_emulator::Primitive::kMbarrierWait, "kMbarrierWait"},
    {gpu_emulator::Primitive::kMatrixWait, "kMatrixWait"},
    {gpu_emulator::Primitive::kMatrixFence, "kMatrixFence"},
    {gpu_emulator::Primitive::kProxyFence, "kProxyFence"},
    {gpu_emulator::Primitive::kBarrierInitFence, "kBarrierInitFence"},
    {gpu_emulator::Primitive::kBulkStoreWait, "kBulkStoreWait"},
};

inline bool IsOrderOnly(gpu_emulator::Primitive primitive) {
  return primitive == gpu_emulator::Primitive::kBlockBarrier ||
         primitive == gpu_emulator::Primitive::kWarpBarrier ||
         primitive == gpu_emulator::Primitive::kFence;
}

// Runs the kernel with a fault, in a process of its own, because a fault can end it. Returns the
// letter of the oracle, or '-'.
inline char OracleOf(const MutatedKernel& kernel, const gpu_emulator::ExecutionRules& rules) {
  constexpr int kQuiet = 10;
  constexpr unsigned kMostSeconds = 60;  // of a kernel that never ends
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMostSeconds);
    gpu_emulator::Executor executor(rules);
    const absl::Status status = kernel.run(executor);
    char letter = '-';
    if (absl::IsDataLoss(status)) letter = 'b';
    if (!status.ok() && letter == '-') {
      letter = absl::StrContains(status.message(), "no thread can continue") ? 'd' : 'r';
    }
    _exit(kQuiet + letter);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return '?';
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return 'd';
  return WIFEXITED(status) ? static_cast<char>(WEXITSTATUS(status) - kQuiet) : 'b';
}

// Returns the letter of the first oracle that speaks under one of several rules, or '-'.
inline char FirstOracleOf(const MutatedKernel& kernel,
                          const gpu_emulator::SkippedPrimitive& skipped) {
  using gpu_emulator::CopyLanding;
  using gpu_emulator::ExecutionOrder;
  for (gpu_emulator::ExecutionRules rules :
       {gpu_emulator::ExecutionRules{.order = ExecutionOrder::kForward},
        {.order = ExecutionOrder::kReverse},
        {.order = ExecutionOrder::kSeeded, .landing = CopyLanding::kEarly, .resident_blocks = 3}}) {
    rules.skipped = skipped;
    if (const char letter = OracleOf(kernel, rules); letter != '-') return letter;
  }
  return '-';
}

inline void ExpectOracles(const MutatedKernel& kernel) {
  gpu_emulator::Executor right;
  ASSERT_EQ(kernel.run(right), absl::OkStatus());
  for (const auto& [primitive, name] : kMutatedPrimitives) {
    const std::vector<std::string>& places = right.places(primitive);
    const auto known = kernel.oracles.find(primitive);
    const std::string expected = known == kernel.oracles.end() ? "" : known->second;
    std::string actual;
    for (int place = 0; place < static_cast<int>(places.size()); ++place) {
      char letter = FirstOracleOf(kernel, {primitive, places[place]});
      // This build cannot tell these from each other.
      const char wanted = place < static_cast<int>(expected.size()) ? expected[place] : '-';
      if (letter == '-' && (wanted == 'R' || wanted == '=')) letter = wanted;
      if ((letter == 'b' || letter == 'r') && wanted == 'R') letter = wanted;
      if (letter == 'r' && wanted == 'b') letter = wanted;
      actual += letter;
    }
    EXPECT_EQ(actual, expected) << kernel.name << ", " << name << " at\n"
                                << absl::StrJoin(places, "\n");
  }
  using gpu_emulator::Primitive;
  EXPECT_FALSE(right.places(Primitive::kKernelWait).empty()) << kernel.name;
  for (const std::string& place : right.places(Primitive::kKernelWait)) {
    EXPECT_EQ(FirstOracleOf(kernel, {Primitive::kKernelWait, place}), 'r')
        << kernel.name << " without WaitForEarlierKernels at " << place;
  }
}

#ifdef BATON_EMULATOR_TSAN

inline void ExpectRaces(const MutatedKernel& kernel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  gpu_emulator::Executor right;
  ASSERT_EQ(kernel.run(right), absl::OkStatus());
  for (const auto& [primitive, letters] : kernel.oracles) {
    if (!IsOrderOnly(primitive)) continue;
    const std::vector<std::string>& places = right.places(primitive);
    ASSERT_EQ(places.size(), letters.size()) << kernel.name;
    for (size_t place = 0; place < places.size(); ++place) {
      // Builds without sanitizers see the others, and cannot tell these two apart.
      const bool races = letters[place] == 'R';
      if (!races && letters[place] != '=') continue;
      const auto run = [&, primitive = primitive, place] {
        gpu_emulator::Executor faulty(
            {.resident_blocks = 2, .skipped = {primitive, places[place]}});
        (void)kernel.run(faulty);
        std::exit(0);  // ThreadSanitizer makes it 66 if it reported a race
      };
      EXPECT_EXIT(run(), testing::ExitedWithCode(races ? 66 : 0), races ? "data race" : "")
          << kernel.name << ", primitive " << static_cast<int>(primitive) << ", place " << place
          << " at " << places[place];
    }
  }
}

#endif

inline void ExpectCaught([[maybe_unused]] const MutatedKernel& kernel) {
#if defined(BATON_EMULATOR_TSAN)
  ExpectRaces(kernel);
#elif !defined(BATON_EMULATOR_ASAN)  // AddressSanitizer is no oracle of these faults
  ExpectOracles(kernel);
#endif
}

}  // namespace baton
