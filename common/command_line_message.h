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

struct Variables {
  std::span<const std::string> names;    // of the environment
  std::span<const std::string> known;    // that some command of the program reads
  std::span<const std::string> read;     // that this command reads
  std::span<const std::string> options;  // that this command's options would have, read or not
};
// Returns a warning for each name that begins with BATON_ and that is not known, if it is almost
// one that the command reads, or belongs to an option that reads none. Variables of other programs
// may stand beside them, so every other name gets no warning.
std::vector<std::string> WarningsOfVariables(const Variables& variables);

}  // namespace baton
