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
  InstructionSet fastest = InstructionSet::kPlain;
  for (const InstructionSet set : kInstructionSets) {
    if (IsSupported(set)) fastest = set;
  }
  if (IsBuilt(fastest)) return std::nullopt;
  return fastest;
}

}  // namespace baton
