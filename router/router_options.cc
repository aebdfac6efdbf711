#include "router/router_options.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace baton {
namespace {

void RegisterRoutingSettings(RoutingOptions& options, SettingList& settings) {
  std::vector<std::pair<std::string, std::string>> policies;
  for (const std::string& name : RoutingPolicyNames()) policies.emplace_back(name, name);
  settings.AddChoice("routing-policy", &options.policy, std::move(policies),
                     "How workers are chosen.");
  settings.Add("routing-seed", &options.seed, int64_t{0}, std::numeric_limits<int64_t>::max(),
               "Seed of the policies random and power-of-two; 0: drawn at start.");
  settings.Add("local-prefill-tokens", &options.local_prefill_tokens, 0, 1 << 24,
               "Prompts with at most so many uncached tokens are computed on the decode worker.");
  settings.Add(
      "local-continuation-tokens", &options.local_continuation_tokens, 0, 1 << 24,
      "Next turns with at most so many uncached tokens are computed on the decode worker that "
      "holds the turns before, when that takes less time than elsewhere.");
  settings.Add(
      "local-prefill-penalty", &options.local_prefill_penalty, 0.0, 1000.0,
      "Computing any other prompt on a decode worker counts so many times its time extra.");
  settings.Add("compute-weight", &options.compute_weight, 0.0, 1000.0,
               "The estimated time of computing a prompt counts so many times.");
  settings.Add(
      "decode-weight", &options.decode_weight, 0.0, 1000.0,
      "The estimated time of decoding an answer among its neighbours counts so many times.");
  settings.Add(
      "load-bound", &options.load_bound, 1.0, 1000.0,
      "Under the policy consistent-hash a worker has at most so many times the mean load.");
  settings.Add("affinity-tokens", &options.affinity_tokens, 16, 1 << 24,
               "Requests without a session go by so many tokens of their prompt's beginning, under "
               "the policies consistent-hash and session-affinity.");
  settings.Add(
      "pull-prefixes", &options.pull_prefixes,
      "What the worker that computes a prompt lacks of it is pulled from a worker that has "
      "it cached, when that costs less than computing it.");
  settings.Add("pull-weight", &options.pull_weight, 0.0, 1000.0,
               "The estimated time of a pull counts so many times.");
}

}  // namespace

void RegisterSettings(RouterOptions& options, SettingList& settings) {
  settings.Add(
      "advertise", &options.advertise,
      "HOST or HOST:PORT printed in the ready line; the address it listens on when empty.");
  settings.Add("pin-model", &options.pin_model, WorkerRegistry::kMaxNameBytes,
               "Name or fingerprint of the one model to serve: workers with another are refused. "
               "Empty: that of the first worker.");
  settings.Add(
      "pin-fingerprint", &options.pin_fingerprint, WorkerRegistry::kMaxNameBytes,
      "The one kind of workers to serve with, as the router's log tells it when one joins: "
      "those whose answers can differ are refused, also where they come first. Empty: that of the "
      "first worker.");
  settings.Add("mixed-fingerprints", &options.mixed_fingerprints,
               "Workers of one model whose answers can differ (KV type, backend, numerics, RoPE) "
               "serve together: who answers decides about the bits.");
  RegisterRoutingSettings(options.routing, settings);
  settings.Add("worker-expiry-ms", &options.worker_expiry_ms, int64_t{100}, int64_t{3'600'000},
               "A worker that was silent for so long is gone, in milliseconds.");
  settings.Add("worker-silence-ms", &options.worker_silence_ms, int64_t{40}, int64_t{600'000},
               "A worker that has answered no probe for so long is given up, in milliseconds: what "
               "it was doing goes on elsewhere. Four probes are sent in that time.");
  settings.Add("max-workers", &options.max_workers, 1, 1 << 20, "Workers that may register.");
  settings.Add("max-prompt-bytes", &options.max_prompt_bytes, int64_t{1}, int64_t{16} << 20,
               "Longest text of a prompt or conversation, in bytes.");
  settings.Add("index-units", &options.index_units, 1, 1 << 27,
               "Runs of 16 tokens cached in the fleet that the router keeps in its index; 20 to 60 "
               "bytes each. Choose the sum of the workers' pools.");
  settings.Add("index-wait-ms", &options.index_wait_ms, int64_t{0}, int64_t{3'600'000},
               "How long a router that starts waits for a worker to tell what it has cached, in "
               "milliseconds, before it is ready without that.");
  settings.Add("client-stall-ms", &options.client_stall_ms, int64_t{100}, int64_t{3'600'000},
               "Milliseconds after which a client that reads nothing loses its answer. A slow "
               "client loses it when it is ten times that far behind.");
  settings.Add(
      "report-wait-ms", &options.report_wait_ms, int64_t{0}, int64_t{60'000},
      "How long a finished answer waits for its prefill worker's figures, in milliseconds.");
  settings.Add("pull-patience", &options.pull_patience, 1.0, 1000.0,
               "A pull that takes so many times its estimated time is given up, and the prompt "
               "computed.");
  settings.Add(
      "pull-least-ms", &options.pull_least_ms, int64_t{1}, int64_t{600'000},
      "How long a pull is waited for at least, in milliseconds: workers answer between two "
      "steps.");
  settings.Add("min-prefill-workers", &options.min_prefill_workers, 0, 1 << 20,
               "The router is ready only with so many prefill workers.");
  settings.Add("min-decode-workers", &options.min_decode_workers, 1, 1 << 20,
               "The router is ready only with so many decode workers.");
}

}  // namespace baton
