#include "text/jinja/string_operations.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace baton {
namespace {

// Overhead in bytes of a split's piece: the string object, its first run, and growth of the list.
constexpr size_t kPieceOverheadBytes = 160;

// A search charges the meter window by window, each before it reads the window. The first window is
// small, because a replacement may start a new search every few bytes.
constexpr size_t kFirstWindowBytes = 64;
constexpr size_t kMaxWindowBytes = 4096;

absl::Status AddPiece(const JinjaString& text, size_t begin, size_t end, JinjaMeter& meter,
                      std::vector<JinjaString>* pieces) {
  RETURN_IF_ERROR(meter.AddSteps(1));
  RETURN_IF_ERROR(meter.AddBytes(end - begin + kPieceOverheadBytes));
  pieces->push_back(text.Substring(begin, end));
  return absl::OkStatus();
}

// Result [i]: length of the longest proper prefix of needle[0 … i] that is also its suffix.
std::vector<size_t> BorderLengths(std::string_view needle) {
  std::vector<size_t> borders(needle.size());
  size_t length = 0;
  for (size_t i = 1; i < needle.size(); ++i) {
    while (length > 0 && needle[i] != needle[length]) length = borders[length - 1];
    if (needle[i] == needle[length]) ++length;
    borders[i] = length;
  }
  return borders;
}

bool IsLineEnd(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

JinjaString StripJinja(const JinjaString& text, JinjaSide side,
                       const std::optional<JinjaString>& characters) {
  const std::string& bytes = text.bytes();
  absl::flat_hash_set<uint32_t> stripped;
  for (size_t i = 0; characters.has_value() && i < characters->size();) {
    const CodePoint point = DecodeUtf8(characters->bytes(), i);
    stripped.insert(point.value);
    i += point.bytes;
  }
  const auto strips = [&](uint32_t code_point) {
    return characters.has_value() ? stripped.contains(code_point) : IsUnicodeSpace(code_point);
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (side != JinjaSide::kRight && begin < end) {
    const CodePoint point = DecodeUtf8(bytes, begin);
    if (!strips(point.value)) break;
    begin += point.bytes;
  }
  while (side != JinjaSide::kLeft && end > begin) {
    const size_t start = PreviousCodePoint(bytes, end);
    if (!strips(DecodeUtf8(bytes, start).value)) break;
    end = start;
  }
  return text.Substring(begin, end);
}

absl::StatusOr<JinjaString> ChangeJinjaCase(const JinjaString& text, JinjaCase change) {
  std::string bytes = text.bytes();
  if (!IsAscii(bytes)) {
    return JinjaUnsupported("changing the case of non-ASCII text is not supported");
  }
  static constexpr std::string_view kWordStarts = "-({[<";
  bool upper = change != JinjaCase::kLower;
  for (char& c : bytes) {
    const char original = c;
    c = upper ? absl::ascii_toupper(c) : absl::ascii_tolower(c);
    if (change == JinjaCase::kCapitalize) upper = false;
    if (change == JinjaCase::kTitle) upper = !absl::ascii_isalpha(original);
    if (change == JinjaCase::kTitleFilter) {
      upper = IsUnicodeSpace(static_cast<unsigned char>(original)) ||
              kWordStarts.find(original) != std::string_view::npos;
    }
  }
  return text.WithBytes(std::move(bytes));
}

absl::StatusOr<size_t> FindJinja(std::string_view text, std::string_view needle, size_t from,
                                 JinjaMeter& meter) {
  if (from > text.size() || needle.size() > text.size() - from) return std::string_view::npos;
  if (needle.empty()) return from;
  RETURN_IF_ERROR(meter.AddBytes(needle.size() * (1 + sizeof(size_t))));
  const std::vector<size_t> borders = BorderLengths(needle);
  size_t position = from;
  size_t matched = 0;  // bytes of the needle that end at `position`
  for (size_t window = kFirstWindowBytes; position < text.size();
       window = std::min(2 * window, kMaxWindowBytes)) {
    const std::string_view charged = text.substr(0, std::min(text.size(), position + window));
    RETURN_IF_ERROR(meter.AddBytes(charged.size() - position));
    for (; position < charged.size(); ++position) {
      if (matched == 0) position = std::min(charged.find(needle[0], position), charged.size());
      if (position == charged.size()) break;
      while (matched > 0 && text[position] != needle[matched]) matched = borders[matched - 1];
      if (text[position] == needle[matched]) ++matched;
      if (matched == needle.size()) return position + 1 - matched;
    }
  }
  return std::string_view::npos;
}

absl::StatusOr<JinjaString> ReplaceJinja(const JinjaString& text, const JinjaString& old,
                                         const JinjaString& replacement, int64_t count,
                                         JinjaMeter& meter) {
  JinjaString result;
  size_t done = 0;  // bytes of text already copied to the result
  size_t search = 0;
  for (; count != 0; count -= count > 0 ? 1 : 0) {
    ASSIGN_OR_RETURN(const size_t found, FindJinja(text.bytes(), old.bytes(), search, meter));
    if (found == std::string::npos) break;
    RETURN_IF_ERROR(meter.AddSteps(1));
    RETURN_IF_ERROR(meter.AddBytes(found - done + replacement.CostBytes()));
    result.AppendRange(text, done, found);
    result.Append(replacement);
    done = found + old.size();
    search = done;
    if (old.empty()) {  // an empty string occurs between all characters and at both ends
      if (found == text.size()) break;
      search = found + DecodeUtf8(text.bytes(), found).bytes;
    }
  }
  RETURN_IF_ERROR(meter.AddBytes(text.size() - done));
  result.AppendRange(text, done, text.size());
  return result;
}

absl::StatusOr<std::vector<JinjaString>> SplitJinja(const JinjaString& text,
                                                    const std::optional<JinjaString>& separator,
                                                    int64_t max_splits, JinjaMeter& meter) {
  const std::string& bytes = text.bytes();
  std::vector<JinjaString> pieces;
  size_t begin = separator.has_value() ? 0 : SkipUnicodeSpace(bytes, 0);
  if (!separator.has_value()) {
    while (begin < bytes.size()) {
      size_t end = begin;
      if (max_splits == 0) {
        end = bytes.size();
      } else {
        while (end < bytes.size()) {
          const CodePoint point = DecodeUtf8(bytes, end);
          if (IsUnicodeSpace(point.value)) break;
          end += point.bytes;
        }
        max_splits -= max_splits > 0 ? 1 : 0;
      }
      RETURN_IF_ERROR(AddPiece(text, begin, end, meter, &pieces));
      begin = SkipUnicodeSpace(bytes, end);
    }
    return pieces;
  }
  for (; max_splits != 0; max_splits -= max_splits > 0 ? 1 : 0) {
    ASSIGN_OR_RETURN(const size_t found, FindJinja(bytes, separator->bytes(), begin, meter));
    if (found == std::string::npos) break;
    RETURN_IF_ERROR(AddPiece(text, begin, found, meter, &pieces));
    begin = found + separator->size();
  }
  RETURN_IF_ERROR(AddPiece(text, begin, bytes.size(), meter, &pieces));
  return pieces;
}

absl::StatusOr<std::vector<JinjaString>> SplitJinjaFromRight(const JinjaString& text,
                                                             const JinjaString& separator,
                                                             int64_t max_splits,
                                                             JinjaMeter& meter) {
  // Searches reversed copies of both strings from the left.
  RETURN_IF_ERROR(meter.AddBytes(text.size() + separator.size()));
  const std::string mirror(text.bytes().rbegin(), text.bytes().rend());
  const std::string needle(separator.bytes().rbegin(), separator.bytes().rend());
  std::vector<JinjaString> pieces;
  size_t end = text.size();
  for (; max_splits != 0; max_splits -= max_splits > 0 ? 1 : 0) {
    ASSIGN_OR_RETURN(const size_t found, FindJinja(mirror, needle, text.size() - end, meter));
    if (found == std::string::npos) break;
    const size_t separator_end = text.size() - found;
    RETURN_IF_ERROR(AddPiece(text, separator_end, end, meter, &pieces));
    end = separator_end - separator.size();
  }
  RETURN_IF_ERROR(AddPiece(text, 0, end, meter, &pieces));
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

absl::StatusOr<std::vector<JinjaString>> SplitJinjaLines(const JinjaString& text,
                                                         JinjaMeter& meter) {
  const std::string& bytes = text.bytes();
  std::vector<JinjaString> pieces;
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint point = DecodeUtf8(bytes, i);
    size_t next = i + point.bytes;
    if (IsLineEnd(point.value)) {
      if (point.value == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      RETURN_IF_ERROR(AddPiece(text, begin, i, meter, &pieces));
      begin = next;
    }
    i = next;
  }
  if (begin < bytes.size()) RETURN_IF_ERROR(AddPiece(text, begin, bytes.size(), meter, &pieces));
  return pieces;
}

absl::StatusOr<std::vector<JinjaString>> JinjaCharacters(const JinjaString& text,
                                                         JinjaMeter& meter) {
  std::vector<JinjaString> characters;
  for (size_t i = 0; i < text.size();) {
    const size_t next = i + DecodeUtf8(text.bytes(), i).bytes;
    RETURN_IF_ERROR(AddPiece(text, i, next, meter, &characters));
    i = next;
  }
  return characters;
}

}  // namespace baton
