// What a user reads about a wrong command line or a mistyped environment variable.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// `what`: CLI11's message, such as "--seed: At Most 1 required but received 2". Returns a plain
// one; a message of ours unchanged.
std::string PlainMessage(std::string_view what);

// Returns a warning for each name that begins with BATON_, that is not one of `known`, and that is
// almost one of `read`: the variables that the program reads. The names of other programs of Baton
// may stand beside them, so a name that is near none gets no warning.
std::vector<std::string> WarningsOfVariables(std::span<const std::string> names,
                                             std::span<const std::string> known,
                                             std::span<const std::string> read);

}  // namespace baton
