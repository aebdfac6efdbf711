// Converts spans to messages of OTLP.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "otlp/trace.pb.h"
#include "tracing/span.h"

namespace baton {

namespace otlp = opentelemetry::proto::collector::trace::v1;

// The program that the spans come from.
struct SpanResource {
  std::string service;   // "baton-router"
  std::string instance;  // unique among the programs with this name
  std::string version;
};

// `unix_offset_us`: Unix time in microseconds at which Clock::NowUs() was 0. Added to a span's
// time, it gives Unix time. Bytes that are not valid UTF-8 are replaced.
otlp::ExportTraceServiceRequest SpansToWire(std::span<const Span> spans,
                                            const SpanResource& resource, int64_t unix_offset_us);

}  // namespace baton
