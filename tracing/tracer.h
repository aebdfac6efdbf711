// Decides which traces are recorded, draws the ids of spans, and passes finished spans on.
//
// A trace that comes from a client is recorded exactly if the client says so. Any other trace is
// recorded with the probability `share`. The decision depends only on the trace's id, as in
// OpenTelemetry's probability sampling, so all programs with the same share decide alike.
//
// Thread safety: every function, from any thread, if `random` and `sink` allow that.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "tracing/span.h"

namespace baton {

class Tracer {
 public:
  // `share`: 0–1. `random` returns random bits. `sink` must outlive this.
  Tracer(double share, std::function<uint64_t()> random, SpanSink* sink);

  // Returns the identity of a new span: a part of `parent`, or the root of a new trace.
  TraceContext NewSpan(const std::optional<TraceContext>& parent) const;
  // Records a span, if its trace is recorded.
  void Record(Span span) const;

 private:
  uint64_t DrawId() const;

  const uint64_t threshold_;  // traces whose id has at least this value in its last 56 bits
  const std::function<uint64_t()> random_;
  SpanSink* const sink_;
};

}  // namespace baton
