// Table of the architectures in this build.
//
// Thread safety: pure functions of constants.
#pragma once

#include <span>

#include "absl/status/statusor.h"

namespace baton {

class Architecture;
class GgufFile;
using ArchitectureList = std::span<const Architecture* const>;

// Returns all architectures, in the order in which messages name them.
ArchitectureList Architectures();

// Returns the architecture of `known` that general.architecture names. NotFound: the file lacks the
// key. Unimplemented names the file's architecture and all known ones.
absl::StatusOr<const Architecture*> FindArchitecture(const GgufFile& file,
                                                     ArchitectureList known = Architectures());

}  // namespace baton
