// Text in lines of a given width.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// `text` broken at blanks, so that no line is longer than `width` bytes unless one word is. Each
// line but the first begins with `indent` blanks, which do not count. Line breaks of `text` count
// as blanks. Without a line break at the end.
std::string WrappedText(std::string_view text, size_t width, size_t indent);

}  // namespace baton
