// Graphs and functions of the emulated GPU.

#include <memory>
#include <string>
#include <utility>

#include "tests/gpu_emulator/emulated_gpu.h"

namespace baton::gpu_emulator {
namespace {

constexpr size_t kGraphNodeBytes = 256;  // device memory of a node of a graph

}  // namespace

CuResult EmulatedGpu::Instantiate(CuGraphExec* exec, CuGraph graph) {
  const std::lock_guard lock(mutex_);
  const auto at = graphs_.find(graph);
  if (at == graphs_.end()) return kCuInvalidHandle;
  auto made = std::make_unique<Exec>(Exec{.nodes = *at->second});
  *exec = reinterpret_cast<CuGraphExec>(made.get());
  execs_.emplace(*exec, std::move(made));
  return kCuSuccess;
}

CuResult EmulatedGpu::UploadGraph(CuGraphExec exec) {
  const std::lock_guard lock(mutex_);
  const auto at = execs_.find(exec);
  if (at == execs_.end()) return kCuInvalidHandle;
  Exec& known = *at->second;
  if (known.memory != 0 || known.nodes->empty()) return kCuSuccess;
  ++counters_.allocations;
  return memory_->Allocate(&known.memory, known.nodes->size() * kGraphNodeBytes);
}

CuResult EmulatedGpu::LaunchGraph(CuGraphExec exec, CuStream stream) {
  if (const CuResult uploaded = UploadGraph(exec); uploaded != kCuSuccess) return uploaded;
  Work work{.kind = Work::Kind::kGraph};
  {
    const std::lock_guard lock(mutex_);
    const auto at = execs_.find(exec);
    if (at == execs_.end()) return kCuInvalidHandle;
    work.graph = at->second->nodes;
  }
  return Enqueue(stream, std::move(work));
}

CuResult EmulatedGpu::DestroyGraph(CuGraph graph) {
  const std::lock_guard lock(mutex_);
  return graphs_.erase(graph) == 1 ? kCuSuccess : kCuInvalidHandle;
}

CuResult EmulatedGpu::DestroyExec(CuGraphExec exec) {
  const std::lock_guard lock(mutex_);
  const auto at = execs_.find(exec);
  if (at == execs_.end()) return kCuInvalidHandle;
  if (at->second->memory != 0) memory_->Free(at->second->memory);
  execs_.erase(at);
  return kCuSuccess;
}

CuResult EmulatedGpu::FindFunction(CuFunction* function, const std::string& name) {
  const Kernel* const kernel = FindKernel(name);
  if (kernel == nullptr) return kCuNotFound;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<EmulatedFunction>& found = functions_[name];
  if (found == nullptr) found = std::make_unique<EmulatedFunction>();
  found->kernel = kernel;
  *function = reinterpret_cast<CuFunction>(found.get());
  return kCuSuccess;
}

EmulatedFunction* EmulatedGpu::FunctionOf(CuFunction function) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, known] : functions_) {
    if (reinterpret_cast<CuFunction>(known.get()) == function) return known.get();
  }
  return nullptr;
}

}  // namespace baton::gpu_emulator
