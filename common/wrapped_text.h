// Breaks text into lines of a given width.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// Breaks `text` at blanks into lines of at most `width` bytes; a longer word gets its own line. All
// lines but the first begin with `indent` blanks, which do not count. Line breaks in `text` count
// as blanks. The result has no line break at the end.
std::string WrappedText(std::string_view text, size_t width, size_t indent);

}  // namespace baton
