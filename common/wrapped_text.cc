#include "common/wrapped_text.h"

#include <algorithm>

namespace baton {

std::string WrappedText(std::string_view text, size_t width, size_t indent) {
  constexpr std::string_view kBlanks = " \n";
  std::string out;
  size_t line_bytes = 0;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty()) return out;
    const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
    text.remove_prefix(word.size());
    if (line_bytes > 0 && line_bytes + 1 + word.size() > width) {
      out += '\n';
      out.append(indent, ' ');
      line_bytes = 0;
    }
    if (line_bytes > 0) {
      out += ' ';
      ++line_bytes;
    }
    out += word;
    line_bytes += word.size();
  }
}

}  // namespace baton
