// Parses server-sent events (the HTML Living Standard, 9.2.6) out of a stream of bytes. Bytes may
// be split anywhere. Only the data of events is kept; comments and other fields are skipped.
//
// The stream is not trusted: an event beyond the limit is an error, and nothing is parsed after it.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

class SseParser {
 public:
  // `on_event` gets the data of each event, with "\n" between its lines.
  SseParser(size_t max_event_bytes, std::function<void(std::string_view)> on_event);

  // ResourceExhausted if a line or an event has more than `max_event_bytes`; then and later.
  absl::Status Feed(std::string_view bytes);

 private:
  void TakeLine();

  const size_t max_event_bytes_;
  const std::function<void(std::string_view)> on_event_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // the last byte was a CR, so a LF that follows ends nothing
  bool at_start_ = true;       // the first line may begin with a byte order mark
  bool failed_ = false;
};

}  // namespace baton
