#include "tracing/tracing_options.h"

namespace baton {

void RegisterSettings(TracingOptions& options, SettingList& settings) {
  settings.Add("otlp-endpoint", &options.otlp_endpoint,
               "OpenTelemetry collector that takes traces over gRPC: HOST:PORT, or "
               "https://HOST:PORT for TLS. Empty: no traces.",
               "[https://]HOST:PORT");
  settings.Add("otlp-ca", &options.otlp_authorities,
               "PEM file with the authorities of the collector's certificate. Empty: the system's.",
               "FILE");
  settings.Add("otlp-cert", &options.otlp_certificate,
               "PEM file with the certificate that this program shows the collector. Empty: none.",
               "FILE");
  settings.Add(
      "otlp-key", &options.otlp_key,
      "PEM file with that certificate's key. Empty: the key is in the file of --otlp-cert.",
      "FILE");
  settings.Add("trace-sample", &options.sample, 0.0, 1.0,
               "Share of requests to trace. If a request has a traceparent, the traceparent "
               "decides instead.");
}

}  // namespace baton
