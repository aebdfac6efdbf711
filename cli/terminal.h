// What a terminal can show, and text for it.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Whether what goes to file descriptor `fd` may have colours: it is a terminal, TERM is set and not
// "dumb", and the variable NO_COLOR is unset or empty (no-color.org).
bool UsesColours(int fd);

// Escape sequences around `text` where `colours`, else `text` alone.
std::string Bold(std::string_view text, bool colours);
std::string Dim(std::string_view text, bool colours);
std::string Red(std::string_view text, bool colours);

}  // namespace baton
