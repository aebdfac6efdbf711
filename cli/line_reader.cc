#include "cli/line_reader.h"

#include <streambuf>

namespace baton {

LineRead ReadLine(std::istream& input, size_t max_bytes, std::string& line) {
  using Traits = std::istream::traits_type;
  line.clear();
  const std::istream::sentry ready(input, /*noskipws=*/true);
  if (!ready) return LineRead::kEnd;
  std::streambuf& buffer = *input.rdbuf();
  bool too_long = false;
  for (int byte = buffer.sbumpc(); byte != '\n'; byte = buffer.sbumpc()) {
    if (Traits::eq_int_type(byte, Traits::eof())) {
      input.setstate(std::ios::eofbit);
      if (line.empty()) return LineRead::kEnd;
      break;
    }
    if (line.size() < max_bytes) {
      line.push_back(Traits::to_char_type(byte));
    } else {
      too_long = true;
    }
  }
  return too_long ? LineRead::kTooLong : LineRead::kLine;
}

}  // namespace baton
