// What Python's str does to text, on strings that remember their origin: each result byte keeps the
// origin of the byte it came from.
//
// Changing case is exact for ASCII and refused past it, where the result hangs on Python's Unicode
// tables. Positions count code points.
// Thread safety: pure; the meter belongs to the render.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/jinja/limits.h"
#include "text/jinja/string.h"

namespace baton {

enum class JinjaSide { kLeft, kRight, kBoth };

// Without leading and/or trailing white space, or the code points of `characters`. Time: linear in
// both; for the caller to charge.
JinjaString StripJinja(const JinjaString& text, JinjaSide side,
                       const std::optional<JinjaString>& characters);

enum class JinjaCase {
  kUpper,
  kLower,
  kCapitalize,   // str.capitalize: first upper, the rest lower
  kTitle,        // str.title: upper after everything that is no letter
  kTitleFilter,  // jinja2's title: upper at the start and after white space, -, (, {, [ and <
};
absl::StatusOr<JinjaString> ChangeJinjaCase(const JinjaString& text, JinjaCase change);

// Byte offset of the first `needle` at or after `from`; npos when there is none. Time: linear in
// the needle and in what is searched, each charged before it is read. Source: Knuth, Morris and
// Pratt, "Fast Pattern Matching in Strings" (1977).
absl::StatusOr<size_t> FindJinja(std::string_view text, std::string_view needle, size_t from,
                                 JinjaMeter& meter);

// The first `count` occurrences replaced; all when count < 0.
absl::StatusOr<JinjaString> ReplaceJinja(const JinjaString& text, const JinjaString& old,
                                         const JinjaString& replacement, int64_t count,
                                         JinjaMeter& meter);

// str.split: at most `max_splits` cuts (any number when < 0) from the left. Without a separator, at
// runs of white space. REQUIRES: the separator is not empty.
absl::StatusOr<std::vector<JinjaString>> SplitJinja(const JinjaString& text,
                                                    const std::optional<JinjaString>& separator,
                                                    int64_t max_splits, JinjaMeter& meter);
// str.rsplit with a separator. REQUIRES: the separator is not empty.
absl::StatusOr<std::vector<JinjaString>> SplitJinjaFromRight(const JinjaString& text,
                                                             const JinjaString& separator,
                                                             int64_t max_splits, JinjaMeter& meter);
// str.splitlines(). Text with a line end other than \n and \r is split there, too, as Python does.
absl::StatusOr<std::vector<JinjaString>> SplitJinjaLines(const JinjaString& text,
                                                         JinjaMeter& meter);

// The single characters.
absl::StatusOr<std::vector<JinjaString>> JinjaCharacters(const JinjaString& text,
                                                         JinjaMeter& meter);

}  // namespace baton
