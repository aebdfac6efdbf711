#include "router/http/http_edge_options.h"

namespace baton {

void RegisterSettings(HttpEdgeOptions& options, SettingList& settings) {
  settings.Add(
      "http-listen", &options.listen,
      "HOST:PORT to serve OpenAI's API on, over HTTP. Port 0 picks a free port. Empty: off.",
      "HOST:PORT");
  settings.Add("http-tls-cert", &options.tls.certificate,
               "PEM file with the HTTP port's certificate. Empty: no encryption.", "FILE");
  settings.Add("http-tls-key", &options.tls.key,
               "PEM file with that certificate's key. Empty: the key is in the file of "
               "--http-tls-cert.",
               "FILE");
  settings.Add("http-allow-origin", &options.allow_origins,
               "Origins of web pages that may use the HTTP port, separated by commas. * allows "
               "all. Empty: none.",
               "LIST");
  settings.Add(
      "http-timeout-ms", &options.timeout_ms, int64_t{1}, int64_t{86'400'000},
      "Deadline of an HTTP request that sets none with Baton-Timeout-Ms, in milliseconds.");
  settings.Add("http-keepalive-ms", &options.keepalive_ms, int64_t{10}, int64_t{3'600'000},
               "Longest time without data on a stream, in milliseconds. Then the router sends a "
               "comment, so that proxies do not close the stream. Errors after the first comment "
               "are events of the stream.");
  settings.Add("http-max-connections", &options.max_connections, 1, 1 << 20,
               "Largest number of open HTTP connections. A further one takes the place of the "
               "connection that has waited longest for a request. If all are busy, it gets "
               "status 503.");
  settings.Add("served-model-name", &options.served_model_names, size_t{4096},
               "Additional names of the model for HTTP clients, separated by commas.", "LIST");
}

}  // namespace baton
