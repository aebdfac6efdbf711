// The architectures that this build knows.
//
// Thread safety: pure functions of constants.
#pragma once

#include <span>

#include "absl/status/statusor.h"

namespace baton {

class Architecture;
class GgufFile;
using ArchitectureList = std::span<const Architecture* const>;

// All of them, in the order in which messages name them.
ArchitectureList Architectures();

// The one of `known` that general.architecture names. NotFound: the file does not say.
// Unimplemented names the file's architecture and all known ones.
absl::StatusOr<const Architecture*> FindArchitecture(const GgufFile& file,
                                                     ArchitectureList known = Architectures());

}  // namespace baton
