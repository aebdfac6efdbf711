#include "tests/gpu_emulator/fiber_pool.h"

#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

constexpr size_t kStacksOfGroup = 64;

}  // namespace

FiberPool::FiberPool() = default;

FiberPool::~FiberPool() {
  const UnrecordedAccesses unrecorded;
  threads_.clear();
}

std::vector<Thread*> FiberPool::Take(size_t first, size_t count) {
  const UnrecordedAccesses unrecorded;
  while (stacks_.size() * kStacksOfGroup < first + count) stacks_.emplace_back(kStacksOfGroup);
  if (threads_.size() < first + count) threads_.resize(first + count);
  std::vector<Thread*> taken;
  for (size_t i = first; i < first + count; ++i) {
    if (threads_[i] == nullptr) {
      const FiberStacks& stacks = stacks_[i / kStacksOfGroup];
      threads_[i] =
          std::make_unique<Thread>(stacks.low(i % kStacksOfGroup), stacks.high(i % kStacksOfGroup));
    }
    taken.push_back(threads_[i].get());
  }
  return taken;
}

}  // namespace baton::gpu_emulator
