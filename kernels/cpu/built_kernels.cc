#include "kernels/cpu/built_kernels.h"

namespace baton {

bool IsBuilt(InstructionSet set) { return KernelsFor(set).set == set; }

std::string BuiltSetNames() {
  std::string names;
  for (const InstructionSet set : kInstructionSets) {
    if (!IsBuilt(set)) continue;
    if (!names.empty()) names += ", ";
    names += InstructionSetName(set);
  }
  return names;
}

std::optional<InstructionSet> FasterUnbuiltSet() {
  std::optional<InstructionSet> faster;
  for (const InstructionSet set : kInstructionSets) {
    if (!IsSupported(set)) continue;
    faster = IsBuilt(set) ? std::nullopt : std::optional(set);
  }
  return faster;
}

}  // namespace baton
