#include "loadtest/sse_parser.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

SseParser::SseParser(size_t max_event_bytes, std::function<void(std::string_view)> on_event)
    : max_event_bytes_(max_event_bytes), on_event_(std::move(on_event)) {}

absl::Status SseParser::Feed(std::string_view bytes) {
  for (const char byte : bytes) {
    if (failed_) break;
    if (byte == '\n' && after_return_) {
      after_return_ = false;
      continue;
    }
    after_return_ = byte == '\r';
    if (byte == '\r' || byte == '\n') {
      TakeLine();
      line_.clear();
    } else {
      line_ += byte;
    }
    failed_ = line_.size() > max_event_bytes_ || data_.size() > max_event_bytes_;
  }
  if (!failed_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a server-sent event has more than ", max_event_bytes_, " bytes"));
}

void SseParser::TakeLine() {
  std::string_view line = line_;
  if (std::exchange(at_start_, false) && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (line.empty()) {
    if (has_data_) on_event_(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return;
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace baton
