#include "tracing/trace_context.h"

#include "absl/strings/str_format.h"

namespace baton {
namespace {

// 00-<32 digits>-<16 digits>-<2 digits>
constexpr size_t kTraceAt = 3;
constexpr size_t kSpanAt = 36;
constexpr size_t kFlagsAt = 53;
constexpr size_t kLength = 55;
constexpr uint64_t kSampledFlag = 1;

// Reads lower-case hexadecimal digits.
std::optional<uint64_t> HexOf(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

}  // namespace

std::optional<TraceContext> ParseTraceParent(std::string_view text) {
  if (text.size() < kLength) return std::nullopt;
  const std::optional<uint64_t> version = HexOf(text.substr(0, 2));
  if (!version.has_value() || *version == 0xff) return std::nullopt;
  // Later versions may add fields behind these.
  if (text.size() > kLength && (*version == 0 || text[kLength] != '-')) return std::nullopt;
  if (text[kTraceAt - 1] != '-' || text[kSpanAt - 1] != '-' || text[kFlagsAt - 1] != '-') {
    return std::nullopt;
  }
  const std::optional<uint64_t> high = HexOf(text.substr(kTraceAt, 16));
  const std::optional<uint64_t> low = HexOf(text.substr(kTraceAt + 16, 16));
  const std::optional<uint64_t> span = HexOf(text.substr(kSpanAt, 16));
  const std::optional<uint64_t> flags = HexOf(text.substr(kFlagsAt, 2));
  if (!high.has_value() || !low.has_value() || !span.has_value() || !flags.has_value()) {
    return std::nullopt;
  }
  if ((*high == 0 && *low == 0) || *span == 0) return std::nullopt;
  return TraceContext{.trace = {.high = *high, .low = *low},
                      .span = *span,
                      .sampled = (*flags & kSampledFlag) != 0};
}

std::string ToTraceParent(const TraceContext& context) {
  return absl::StrFormat("00-%016x%016x-%016x-%02x", context.trace.high, context.trace.low,
                         context.span, context.sampled ? 1 : 0);
}

}  // namespace baton
