#include "kernels/cpu/cpu_kernels.h"

#include "kernels/cpu/built_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace baton {
namespace {

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows "f16c".
bool HasF16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

}  // namespace

std::string_view InstructionSetName(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPlain:
      return "plain";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512NoVnni:
      return "avx512-no-vnni";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool IsSupported(InstructionSet set) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  const bool no_vnni = avx2 && __builtin_cpu_supports("avx512f") &&
                       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512dq");
  const bool avx512 = no_vnni && __builtin_cpu_supports("avx512vnni");
#else
  const bool avx2 = false;
  const bool no_vnni = false;
  const bool avx512 = false;
#endif
  switch (set) {
    case InstructionSet::kPlain:
      return true;
    case InstructionSet::kAvx2:
      return avx2;
    case InstructionSet::kAvx512NoVnni:
      return no_vnni;
    case InstructionSet::kAvx512:
      return avx512;
  }
  return false;
}

InstructionSet BestInstructionSet() {
  InstructionSet best = InstructionSet::kPlain;
  for (const InstructionSet set : kInstructionSets) {
    if (IsSupported(set) && IsBuilt(set)) best = set;
  }
  return best;
}

const CpuKernels& KernelsFor(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx2:
      return Avx2Kernels();
    case InstructionSet::kAvx512NoVnni:
      return Avx512NoVnniKernels();
    case InstructionSet::kAvx512:
      return Avx512Kernels();
    case InstructionSet::kPlain:
      break;
  }
  return PlainKernels();
}

}  // namespace baton
