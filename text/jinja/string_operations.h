// Operations of Python's str on JinjaString. Each byte of a result keeps the trust of the byte that
// it was copied from.
//
// Changing case works for ASCII and is refused for other text, because the result depends on
// Python's Unicode tables. Positions count code points unless a comment says otherwise.
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

// Removes leading or trailing white space, or the code points of `characters` if given. Time is
// linear in both strings. The caller charges the meter.
JinjaString StripJinja(const JinjaString& text, JinjaSide side,
                       const std::optional<JinjaString>& characters);

enum class JinjaCase {
  kUpper,
  kLower,
  kCapitalize,   // str.capitalize: first upper, the rest lower
  kTitle,        // str.title: upper after every character that is not a letter
  kTitleFilter,  // jinja2's title: upper at the start and after white space, -, (, {, [ and <
};
absl::StatusOr<JinjaString> ChangeJinjaCase(const JinjaString& text, JinjaCase change);

// Returns the byte offset of the first `needle` at or after `from`; npos if there is none. Time is
// linear in the needle and in the searched text. Both are charged to the meter before they are
// read. Source: Knuth, Morris and Pratt, "Fast Pattern Matching in Strings" (1977).
absl::StatusOr<size_t> FindJinja(std::string_view text, std::string_view needle, size_t from,
                                 JinjaMeter& meter);

// str.replace: replaces the first `count` occurrences, or all if count < 0.
absl::StatusOr<JinjaString> ReplaceJinja(const JinjaString& text, const JinjaString& old,
                                         const JinjaString& replacement, int64_t count,
                                         JinjaMeter& meter);

// str.split: splits at most `max_splits` times from the left; any number of times if it is < 0.
// Without a separator it splits at runs of white space. REQUIRES: the separator is not empty.
absl::StatusOr<std::vector<JinjaString>> SplitJinja(const JinjaString& text,
                                                    const std::optional<JinjaString>& separator,
                                                    int64_t max_splits, JinjaMeter& meter);
// str.rsplit with a separator. REQUIRES: the separator is not empty.
absl::StatusOr<std::vector<JinjaString>> SplitJinjaFromRight(const JinjaString& text,
                                                             const JinjaString& separator,
                                                             int64_t max_splits, JinjaMeter& meter);
// str.splitlines(). As in Python, there are more line ends than \n and \r.
absl::StatusOr<std::vector<JinjaString>> SplitJinjaLines(const JinjaString& text,
                                                         JinjaMeter& meter);

// Splits `text` into its code points.
absl::StatusOr<std::vector<JinjaString>> JinjaCharacters(const JinjaString& text,
                                                         JinjaMeter& meter);

}  // namespace baton
