// What a terminal can show, and text for it.
//
// Thread safety: from any thread while none changes the environment.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Whether file descriptor `fd` is a terminal that takes escape sequences: TERM is set and not
// "dumb".
bool TakesEscapes(int fd);
// Whether text for `fd` may have colours: it TakesEscapes, and the variable NO_COLOR is unset or
// empty (no-color.org).
bool UsesColours(int fd);

// Escape sequences around `text` where `colours`, else `text` alone.
std::string Bold(std::string_view text, bool colours);
std::string Dim(std::string_view text, bool colours);
std::string Red(std::string_view text, bool colours);

}  // namespace baton
