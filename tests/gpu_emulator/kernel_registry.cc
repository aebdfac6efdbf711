#include "tests/gpu_emulator/kernel_registry.h"

#include <glog/logging.h>

#include <map>

namespace baton::gpu_emulator {
namespace {

std::map<std::string_view, const Kernel*>& Kernels() {
  static std::map<std::string_view, const Kernel*> kernels;
  return kernels;
}

}  // namespace

bool RegisterKernel(const Kernel& kernel) { return Kernels().emplace(kernel.name, &kernel).second; }

const Kernel* FindKernel(std::string_view name) {
  const auto found = Kernels().find(name);
  return found == Kernels().end() ? nullptr : found->second;
}

std::vector<const Kernel*> AllKernels() {
  std::vector<const Kernel*> all;
  for (const auto& [name, kernel] : Kernels()) all.push_back(kernel);
  return all;
}

KernelRegistration::KernelRegistration(const Kernel& kernel) : kernel_(kernel) {
  CHECK(RegisterKernel(kernel_)) << "two kernels are named " << kernel.name;
}

}  // namespace baton::gpu_emulator
