#include "router/router_options.h"

namespace baton {

void RegisterSettings(RouterOptions& options, SettingList& settings) {
  RegisterSettings(options.server, settings);
  settings.Add("advertise", &options.advertise,
               "Host name printed in the ready line; the listen host when empty.");
  settings.Add("pin-model", &options.pin_model, WorkerRegistry::kMaxNameBytes,
               "Name or fingerprint of the one model to serve: workers with another are refused. "
               "Empty: that of the first worker.");
  settings.Add("local-prefill-tokens", &options.routing.local_prefill_tokens, 0, 1 << 24,
               "Prompts with at most so many uncached tokens are computed on the decode worker.");
  settings.Add(
      "local-continuation-tokens", &options.routing.local_continuation_tokens, 0, 1 << 24,
      "The same for prompts of which the decode worker holds more than the prefill worker.");
  settings.Add("tokens-per-load", &options.routing.tokens_per_load, 0, 1 << 20,
               "What one request on a worker costs in routing, in prompt tokens.");
  settings.Add("worker-expiry-ms", &options.worker_expiry_ms, int64_t{100}, int64_t{3'600'000},
               "A worker that was silent for so long is gone, in milliseconds.");
  settings.Add("max-workers", &options.max_workers, 1, 1 << 20, "Workers that may register.");
  settings.Add("max-prompt-bytes", &options.max_prompt_bytes, int64_t{1}, int64_t{16} << 20,
               "Longest text of a prompt or conversation, in bytes.");
  settings.Add("index-units", &options.index_units, 1, 1 << 27,
               "Runs of 16 tokens cached in the fleet that the router keeps in its index; 20 to 60 "
               "bytes each. Choose the sum of the workers' pools.");
  settings.Add("index-wait-ms", &options.index_wait_ms, int64_t{0}, int64_t{3'600'000},
               "How long a router that starts waits for a worker to tell what it has cached, in "
               "milliseconds, before it is ready without that.");
  settings.Add("decode-attempts", &options.decode_attempts, 1, 64,
               "Decode workers that are tried before a request is refused.");
  settings.Add("max-resumes", &options.max_resumes, 0, 1024,
               "How often an answer goes on elsewhere when its decode worker is lost.");
  settings.Add(
      "report-wait-ms", &options.report_wait_ms, int64_t{0}, int64_t{60'000},
      "How long a finished answer waits for its prefill worker's figures, in milliseconds.");
  settings.Add("min-prefill-workers", &options.min_prefill_workers, 0, 1 << 20,
               "The router is ready only with so many prefill workers.");
  settings.Add("min-decode-workers", &options.min_decode_workers, 1, 1 << 20,
               "The router is ready only with so many decode workers.");
}

}  // namespace baton
