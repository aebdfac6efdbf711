// Lines of an input that nobody vouches for: a line longer than the limit is read over, never kept.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>

namespace baton {

enum class LineRead : uint8_t { kLine, kTooLong, kEnd };

// Reads to the next newline, which is not part of `line`, or to the end of the input. kTooLong: the
// line had more than `max_bytes`, and `line` holds its first `max_bytes`.
LineRead ReadLine(std::istream& input, size_t max_bytes, std::string& line);

}  // namespace baton
