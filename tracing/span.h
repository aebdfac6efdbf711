// A span of a trace: a named part of a request's time, with attributes. It never has text of
// prompts or answers.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "tracing/trace_context.h"

namespace baton {

using SpanValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

struct SpanAttribute {
  std::string_view key;  // a constant
  SpanValue value;
};

enum class SpanKind : uint8_t { kInternal, kServer };

struct Span {
  TraceContext context;
  uint64_t parent = 0;  // span that this one is a part of; 0: none
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  // On the scale of Clock::NowUs().
  int64_t begin_us = 0;
  int64_t end_us = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<SpanAttribute> attributes = {};

  void Add(std::string_view key, SpanValue value) {
    attributes.push_back({.key = key, .value = std::move(value)});
  }
};

class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Never blocks. May drop the span.
  virtual void Add(Span span) = 0;
};

}  // namespace baton
