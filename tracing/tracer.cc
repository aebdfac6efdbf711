#include "tracing/tracer.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr uint64_t kIdValues = uint64_t{1} << 56;  // of the last 56 bits of a trace's id

}  // namespace

Tracer::Tracer(double share, std::function<uint64_t()> random, SpanSink* sink)
    : threshold_(static_cast<uint64_t>((1 - std::clamp(share, 0.0, 1.0)) *
                                       static_cast<double>(kIdValues))),
      random_(std::move(random)),
      sink_(sink) {}

uint64_t Tracer::DrawId() const {
  for (;;) {
    if (const uint64_t id = random_(); id != 0) return id;
  }
}

TraceContext Tracer::NewSpan(const std::optional<TraceContext>& parent) const {
  if (parent.has_value()) {
    return {.trace = parent->trace, .span = DrawId(), .sampled = parent->sampled};
  }
  const TraceId trace = {.high = DrawId(), .low = DrawId()};
  return {.trace = trace, .span = DrawId(), .sampled = trace.low % kIdValues >= threshold_};
}

void Tracer::Record(Span span) const {
  if (span.context.sampled) sink_->Add(std::move(span));
}

}  // namespace baton
