// The instruction sets whose kernels this build has. BATON_INSTRUCTION_SETS (CMakeLists.txt)
// chooses them. KernelsFor returns the plain kernels for any other set.
//
// Thread safety: these functions may be called from any thread.
#pragma once

#include <optional>
#include <string>

#include "kernels/cpu/cpu_kernels.h"

namespace baton {

// Returns true if this build has the kernels of the set. Every build has the plain ones.
bool IsBuilt(InstructionSet set);
// Returns the names of the built sets: "plain, avx2".
std::string BuiltSetNames();
// Returns the last supported one of kInstructionSets if this build lacks it, otherwise nothing.
std::optional<InstructionSet> FasterUnbuiltSet();

}  // namespace baton
