// Finds the known name that a mistyped name probably means.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace baton {

// Returns the number of bytes to insert, delete, replace or swap with their neighbour to turn
// `from` into `to` (optimal string alignment distance).
int EditDistance(std::string_view from, std::string_view to);

// Returns the name with the least distance from `given`, the first among equals. Returns "" if
// every name is too far: more than a third of the letters differ, `given` is not the beginning of a
// name, and neither ends with the words of the other. Leading dashes do not count as letters.
std::string NearestName(std::string_view given, std::span<const std::string> names);
// Returns `value`, or "empty". For messages of the form "--x: is VALUE; must be …".
std::string_view Shown(std::string_view value);
// Returns "is leastloaded; must be one of random, least-loaded; did you mean least-loaded?". The
// question is left out if no choice is near.
std::string UnknownChoice(std::string_view value, std::span<const std::string> choices);
// Returns an error message such as "there is no option --topp; did you mean --top-p?". `kind` is
// the word for such a name. The question is left out if no name is near.
std::string UnknownName(std::string_view kind, std::string_view given,
                        std::span<const std::string> names);

}  // namespace baton
