#include "kernels/cpu/built_kernels.h"

#include <iterator>

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
  for (auto set = std::rbegin(kInstructionSets); set != std::rend(kInstructionSets); ++set) {
    if (!IsSupported(*set)) continue;
    if (IsBuilt(*set)) return std::nullopt;
    return *set;
  }
  return std::nullopt;
}

}  // namespace baton
