// The kernels that are compiled into a host program, by name.
//
// BATON_KERNEL at the end of a kernel file registers its kernel before main() runs. Kernel files
// must be linked as object files, because a linker would drop them from a static library.
//
// Thread safety: FindKernel is safe from any thread after main() has begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace baton::gpu_emulator {

struct Kernel {
  std::string name;
  size_t params_bytes;
  void (*run)(const void* params);                // one CUDA thread
  uint32_t most_threads = 1024;                   // of a block, as in its __launch_bounds__
  void (*clear_padding)(void* params) = nullptr;  // sets bytes between the fields to 0
};

inline constexpr size_t kMostParamsBytes = 4096;

// Returns false if the name is taken. The kernel must live for the rest of the program.
bool RegisterKernel(const Kernel& kernel);
// Returns nullptr if there is no such kernel.
const Kernel* FindKernel(std::string_view name);
std::vector<const Kernel*> AllKernels();  // by name

class KernelRegistration {
 public:
  explicit KernelRegistration(const Kernel& kernel);

 private:
  const Kernel kernel_;
};

template <typename Params, auto kKernel>
void RunKernel(const void* params) {
  static_assert(std::is_trivially_copyable_v<Params>, "a parameter struct is copied as bytes");
  static_assert(sizeof(Params) <= kMostParamsBytes, "CUDA passes at most 4 KiB of parameters");
  kKernel(*static_cast<const Params*>(params));
}

template <typename Params>
void ClearPadding(void* params) {
  __builtin_clear_padding(static_cast<Params*>(params));
}

}  // namespace baton::gpu_emulator
