#include "tracing/tracing_options.h"

namespace baton {

void RegisterSettings(TracingOptions& options, SettingList& settings) {
  settings.Add("otlp-endpoint", &options.otlp_endpoint,
               "HOST:PORT of an OpenTelemetry collector that takes traces over gRPC, without TLS. "
               "Empty: no traces.",
               "HOST:PORT");
  settings.Add("trace-sample", &options.sample, 0.0, 1.0,
               "Share of requests to trace. If a request has a traceparent, the traceparent "
               "decides instead.");
}

}  // namespace baton
