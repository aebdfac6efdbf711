// Text that somebody else wrote, as it may go to a terminal or a log.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

inline constexpr size_t kMostShownBytes = 1024;

// At most `most_bytes` of it, with what controls a terminal or reorders its line (C0, C1, DEL,
// bidirectional marks) and what is no UTF-8 written as \xNN. A line break is \x0a: one line stays
// one line.
std::string Printable(std::string_view text, size_t most_bytes = kMostShownBytes);

// Whether two messages tell the same but for the digits in them.
bool SameButForNumbers(std::string_view a, std::string_view b);

}  // namespace baton
