// Constructors for errors of the template engine.
//
// A message is joined from pieces. Pieces may be std::string_view, which the StrCat of the
// supported Abseil does not accept. At most the first 1024 bytes of each piece are shown. The
// parser or the evaluator puts "line N: " before a message that has no line yet.
//
// Thread safety: pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace jinja_internal {

// Longer pieces are cut at a code point, because a template can contain a name of any length.
inline constexpr size_t kMaxPieceBytes = 1024;

inline absl::string_view Piece(std::string_view text) {
  size_t shown = std::min(text.size(), kMaxPieceBytes);
  while (shown > 0 && shown < text.size() && (text[shown] & 0xC0) == 0x80) --shown;
  return {text.data(), shown};
}
template <typename T>
requires(!std::is_convertible_v<T, std::string_view>) T Piece(T number) { return number; }

}  // namespace jinja_internal

template <typename... Pieces>
std::string JinjaMessage(const Pieces&... pieces) {
  return absl::StrCat(jinja_internal::Piece(pieces)...);
}

// The template or its input is wrong.
template <typename... Pieces>
absl::Status JinjaError(const Pieces&... pieces) {
  return absl::InvalidArgumentError(JinjaMessage(pieces...));
}

// jinja2 or Python supports the construct; this engine does not.
template <typename... Pieces>
absl::Status JinjaUnsupported(const Pieces&... pieces) {
  return absl::UnimplementedError(JinjaMessage(pieces...));
}

// A limit of JinjaLimits was exceeded.
template <typename... Pieces>
absl::Status JinjaLimitReached(const Pieces&... pieces) {
  return absl::ResourceExhaustedError(JinjaMessage(pieces...));
}

inline absl::Status AtLine(int line, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("line ", line, ": ", status.message()));
}

}  // namespace baton
