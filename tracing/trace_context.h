// Identity of a span in a trace, and its text form `traceparent` (W3C Trace Context), in which it
// travels between processes.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

struct TraceId {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const TraceId&) const = default;
};

struct TraceContext {
  TraceId trace;         // not 0
  uint64_t span = 0;     // not 0
  bool sampled = false;  // the trace is recorded

  bool operator==(const TraceContext&) const = default;
};

// Returns nullopt for any text that is not a valid traceparent. The W3C then asks to ignore it.
std::optional<TraceContext> ParseTraceParent(std::string_view text);
std::string ToTraceParent(const TraceContext& context);

}  // namespace baton
