// Makes text from an untrusted source safe for a terminal or a log.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

inline constexpr size_t kMostShownBytes = 1024;

// Returns at most `most_bytes` of `text`. Bytes that control a terminal, reorder a line or are not
// UTF-8 become \xNN: C0, C1, DEL, bidirectional marks. A line break becomes \x0a, so the result is
// one line.
std::string Printable(std::string_view text, size_t most_bytes = kMostShownBytes);

// Returns true if two messages differ only in their digits.
bool SameButForNumbers(std::string_view a, std::string_view b);

}  // namespace baton
