// Which known name a mistyped one was probably meant to be.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace baton {

// Letters to insert, delete, replace or swap with their neighbour to turn `from` into `to` (optimal
// string alignment). Both count in bytes.
int EditDistance(std::string_view from, std::string_view to);

// The name with the least distance from `given`, the first of several. Empty where all are too far:
// more than a third of the letters differ, and `given` begins no name. Dashes in front do not count
// as letters.
std::string NearestName(std::string_view given, std::span<const std::string> names);

}  // namespace baton
