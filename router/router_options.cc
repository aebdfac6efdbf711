#include "router/router_options.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/prompt_chunks.h"

namespace baton {

void RegisterRoutingSettings(RoutingOptions& options, SettingList& settings) {
  std::vector<std::pair<std::string, std::string>> policies;
  for (const std::string& name : RoutingPolicyNames()) policies.emplace_back(name, name);
  settings.AddChoice("routing-policy", &options.policy, std::move(policies),
                     "How the router chooses workers.");
  settings.Add("routing-seed", &options.seed, int64_t{0}, std::numeric_limits<int64_t>::max(),
               "Seed of the policies random and power-of-two. 0: drawn at the start.");
  settings.Add("local-prefill-tokens", &options.local_prefill_tokens, 0, 1 << 24,
               "A prompt with at most this many uncached tokens is computed on the decode worker.");
  settings.Add(
      "local-continuation-tokens", &options.local_continuation_tokens, 0, 1 << 24,
      "The next turn of a chat with at most this many uncached tokens is computed on the decode "
      "worker that holds the earlier turns, if that takes less time than elsewhere.");
  settings.Add(
      "local-prefill-penalty", &options.local_prefill_penalty, 0.0, 1000.0,
      "Extra cost of computing any other prompt on a decode worker, as a multiple of its time.");
  settings.Add("compute-weight", &options.compute_weight, 0.0, 1000.0,
               "Weight of the estimated time to compute a prompt.");
  settings.Add("decode-weight", &options.decode_weight, 0.0, 1000.0,
               "Weight of the estimated time to decode an answer in the worker's batch.");
  settings.Add(
      "load-bound", &options.load_bound, 1.0, 1000.0,
      "Limit on a worker's load under the policy consistent-hash, as a multiple of the mean load.");
  settings.Add("affinity-tokens", &options.affinity_tokens, 16, 1 << 24,
               "Tokens of the prompt's beginning that replace a missing session id, under the "
               "policies consistent-hash and session-affinity.");
  settings.Add(
      "pull-prefixes", &options.pull_prefixes,
      "The worker that computes a prompt first pulls cached blocks of it from another worker, if "
      "that costs less than computing them.");
  settings.Add("pull-weight", &options.pull_weight, 0.0, 1000.0,
               "Weight of the estimated time of a pull.");
  settings.Add(
      "routing-candidates", &options.candidates, 0, 1 << 20,
      "In a fleet of more workers than this, the policy kv-aware looks at about so many for "
      "each request: those with most of the prompt cached, the least busy ones, and random "
      "ones. 0: always at all workers.");
}

void RegisterSettings(RouterOptions& options, SettingList& settings) {
  settings.Add("advertise", &options.advertise,
               "HOST or HOST:PORT to print in the ready line. Empty: the listening address.");
  settings.Add("pin-model", &options.pin_model, WorkerRegistry::kMaxNameBytes,
               "Name or fingerprint of the model to serve; workers with another model are refused. "
               "Empty: the first worker's model.");
  settings.Add(
      "pin-fingerprint", &options.pin_fingerprint, WorkerRegistry::kMaxNameBytes,
      "Fingerprint of the workers to serve with, as the router logs it when a worker joins. "
      "Workers that could give different answers are refused. Empty: the first worker's "
      "fingerprint.");
  settings.Add("mixed-fingerprints", &options.mixed_fingerprints,
               "Workers of one model with different KV type, backend, numerics or RoPE serve "
               "together. The exact bits of an answer then depend on the worker.");
  RegisterRoutingSettings(options.routing, settings);
  settings.Add("worker-expiry-ms", &options.worker_expiry_ms, int64_t{100}, int64_t{3'600'000},
               "Milliseconds without a heartbeat after which the router forgets a worker.");
  settings.Add("worker-silence-ms", &options.worker_silence_ms, int64_t{40}, int64_t{600'000},
               "Milliseconds without an answer to a probe after which the router moves a worker's "
               "requests to other workers. It sends four probes in that time.");
  settings.Add("max-workers", &options.max_workers, 1, 1 << 20, "Most workers that may register.");
  settings.Add("max-prompt-bytes", &options.max_prompt_bytes, int64_t{1}, int64_t{16} << 20,
               "Longest text of a prompt or conversation, in bytes.");
  settings.Add("chunk-separator", &options.chunk_separator, size_t{kMaxChunkSeparatorBytes},
               "Text that splits a prompt, or the first user message that contains it, into "
               "system part, chunks and question. A request can set its own. Empty: off.");
  settings.Add("index-units", &options.index_units, 1, 1 << 27,
               "Capacity of the router's index, in cached runs of 16 tokens; 20 to 60 bytes each. "
               "Choose the sum of the workers' pools.");
  settings.Add("request-log-lines", &options.request_log_lines, 0, 1'000'000,
               "Lines a second in the log about requests that have ended, one for each request. "
               "More lines are left out and counted. 0: none.");
  settings.Add("index-wait-ms", &options.index_wait_ms, int64_t{0}, int64_t{3'600'000},
               "Milliseconds for which a starting router waits for each worker's cached prefixes "
               "before it is ready without them.");
  settings.Add("client-stall-ms", &options.client_stall_ms, int64_t{100}, int64_t{3'600'000},
               "Milliseconds after which a client that reads nothing loses its answer. A slow "
               "client loses it when it falls behind by ten times as long.");
  settings.Add("report-wait-ms", &options.report_wait_ms, int64_t{0}, int64_t{60'000},
               "Milliseconds for which a finished answer waits for its prefill worker's figures.");
  settings.Add("pull-patience", &options.pull_patience, 1.0, 1000.0,
               "A pull is cancelled after this multiple of its estimated time. The prompt is then "
               "computed.");
  settings.Add(
      "pull-least-ms", &options.pull_least_ms, int64_t{1}, int64_t{600'000},
      "Shortest timeout of a pull, in milliseconds. Workers answer only between two steps.");
  settings.AddChoice<RolePlannerMode>(
      "role-planner", &options.roles.mode,
      {{"off", RolePlannerMode::kOff},
       {"advise", RolePlannerMode::kAdvise},
       {"apply", RolePlannerMode::kApply}},
      "Whether the router plans how many workers prefill and how many decode, from the measured "
      "load: advise shows the wish in `baton status`; apply also changes workers' roles.");
  settings.Add("role-planner-period-ms", &options.roles.period_ms, int64_t{1000},
               int64_t{1'200'000},
               "Shortest time between two changes of roles, in milliseconds. The wish must last as "
               "long before a worker changes its role.");
  settings.Add("min-prefill-workers", &options.min_prefill_workers, 0, 1 << 20,
               "Prefill workers that the router needs to be ready.");
  settings.Add("min-decode-workers", &options.min_decode_workers, 1, 1 << 20,
               "Decode workers that the router needs to be ready.");
  settings.Add(
      "tenants", &options.tenants,
      "File of tenants' limits and weights, one JSON object a line. It is read again when it "
      "changes. Empty: tenants have no limits.");
  settings.Add("router-count", &options.router_count, 1, 1024,
               "Routers of this fleet. Each grants this part of tenants' limits, rounded up.");
  settings.Add(
      "tenant-window", &options.tenant_window, 1, 1 << 16,
      "With --tenants: requests for each worker that may wait for their first token there. "
      "The others wait at the router, where tenants share the fleet by weight.");
}

}  // namespace baton
