#include "text/streaming_detokenizer.h"

#include <string_view>
#include <utility>

#include "text/utf8.h"

namespace baton {

std::string StreamingDetokenizer::Append(TokenId id) {
  if (tokenizer_.IsControl(id) && !options_.include_control) return "";
  pending_ += tokenizer_.TokenBytes(id);
  // Only the last character can be incomplete.
  size_t certain = 0;
  while (certain < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(certain);
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Kind::kIncomplete) break;
    certain += step.length;
  }
  std::string text = ReplaceInvalidUtf8(std::string_view(pending_).substr(0, certain));
  pending_.erase(0, certain);
  return text;
}

std::string StreamingDetokenizer::Finish() {
  return ReplaceInvalidUtf8(std::exchange(pending_, ""));
}

}  // namespace baton
