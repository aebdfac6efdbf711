// Detects what a terminal can show, and formats text for it.
//
// Thread safety: from any thread while none changes the environment.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Returns true if file descriptor `fd` is a terminal that takes escape sequences: TERM is set and
// not "dumb".
bool TakesEscapes(int fd);
// Returns true if text for `fd` may have colours: TakesEscapes(fd), and the variable NO_COLOR is
// unset or empty (no-color.org).
bool UsesColours(int fd);

// Returns the text in escape sequences if `colours`, else the text alone.
std::string Bold(std::string_view text, bool colours);
std::string Dim(std::string_view text, bool colours);
std::string Red(std::string_view text, bool colours);

}  // namespace baton
