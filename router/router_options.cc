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
  settings.Add(
      "answer-delay-weight", &options.answer_delay_weight, 0.0, 1000.0,
      "Weight of the time by which computing a prompt on a worker that decodes delays each "
      "of that worker's answers. More: steadier answers, later first tokens.");
  settings.Add("away-weight", &options.away_weight, 0.0, 1000.0,
               "With several routers: weight of the prompts that others may be sending to a worker "
               "at this moment. 0: every router chooses as if it were alone.");
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

void RegisterRolePlannerSettings(RolePlanningOptions& options, SettingList& settings) {
  settings.AddChoice<RolePlannerMode>(
      "role-planner", &options.mode,
      {{"off", RolePlannerMode::kOff},
       {"advise", RolePlannerMode::kAdvise},
       {"apply", RolePlannerMode::kApply}},
      "Plan how many workers should prefill and how many should decode, from the measured load. "
      "advise: `baton status` shows the plan. apply: the router also changes workers' roles.");
  settings.Add("role-planner-period-ms", &options.period_ms, int64_t{1000}, int64_t{1'200'000},
               "Shortest time between two changes of roles, in milliseconds. The router changes a "
               "role only after the plan has recommended it for this time.");
}

void RegisterSettings(RouterOptions& options, SettingList& settings) {
  settings.Add("advertise", &options.advertise,
               "HOST or HOST:PORT to print in the ready line. Empty: the listening address.",
               "HOST:PORT");
  settings.Add("pin-model", &options.pin_model, WorkerRegistry::kMaxNameBytes,
               "Name or fingerprint of the model to serve. Workers with another model are refused. "
               "Empty: the model of the first worker.",
               "NAME");
  settings.Add("pin-fingerprint", &options.pin_fingerprint, WorkerRegistry::kMaxNameBytes,
               "Fingerprint that workers must have. The router logs it when a worker joins. "
               "Workers with another fingerprint are refused, because their answers could differ. "
               "Empty: the fingerprint of the first worker.");
  settings.Add("mixed-fingerprints", &options.mixed_fingerprints,
               "Accept workers of one model with different KV types, backends, numerics or RoPE. "
               "The exact bits of an answer then depend on its worker.");
  RegisterRoutingSettings(options.routing, settings);
  settings.Add("worker-expiry-ms", &options.worker_expiry_ms, int64_t{100}, int64_t{3'600'000},
               "Milliseconds without a heartbeat after which the router forgets a worker.");
  settings.Add("worker-silence-ms", &options.worker_silence_ms, int64_t{40}, int64_t{600'000},
               "Milliseconds without an answer to a probe after which the router moves a worker's "
               "requests to other workers. It sends four probes in that time.");
  settings.Add("max-workers", &options.max_workers, 1, 1 << 20,
               "Largest number of registered workers.");
  settings.Add("max-prompt-bytes", &options.max_prompt_bytes, int64_t{1}, int64_t{16} << 20,
               "Longest text of a prompt or conversation, in bytes.");
  settings.Add(
      "chunk-separator", &options.chunk_separator, size_t{kMaxChunkSeparatorBytes},
      "Text that splits a prompt into system part, chunks and question. In a conversation, it "
      "splits the first user message that contains it. A request can set its own. Empty: off.");
  settings.Add("index-units", &options.index_units, 1, 1 << 27,
               "Capacity of the router's index of cached prefixes, in runs of 16 tokens. Each "
               "takes 20 to 60 bytes. It should hold the pools of all workers together.");
  settings.Add("request-log-lines", &options.request_log_lines, 0, 1'000'000,
               "Largest number of log lines per second about ended requests. Each request has one "
               "line. Further lines are left out and counted. 0: none.");
  settings.Add("index-wait-ms", &options.index_wait_ms, int64_t{0}, int64_t{3'600'000},
               "How long a starting router waits for the list of each worker's cached prefixes, in "
               "milliseconds. Then it becomes ready without the list.");
  settings.Add(
      "client-stall-ms", &options.client_stall_ms, int64_t{100}, int64_t{3'600'000},
      "If a client reads nothing for this long, its answer is cancelled, in milliseconds. The "
      "answer of a slow client is cancelled when its oldest unread message is ten times as old.");
  settings.Add(
      "report-wait-ms", &options.report_wait_ms, int64_t{0}, int64_t{60'000},
      "How long a finished answer waits for the figures of its prefill worker, in milliseconds.");
  settings.Add("pull-patience", &options.pull_patience, 1.0, 1000.0,
               "A pull is cancelled after this multiple of its estimated time. The prompt is then "
               "computed.");
  settings.Add(
      "pull-least-ms", &options.pull_least_ms, int64_t{1}, int64_t{600'000},
      "Shortest timeout of a pull, in milliseconds. Workers answer only between two steps.");
  RegisterRolePlannerSettings(options.roles, settings);
  settings.Add("min-prefill-workers", &options.min_prefill_workers, 0, 1 << 20,
               "The router is ready only with this number of prefill workers.");
  settings.Add("min-decode-workers", &options.min_decode_workers, 1, 1 << 20,
               "The router is ready only with this number of decode workers.");
  settings.Add("tenants", &options.tenants,
               "File with the limits and weights of tenants, one JSON object a line. It is read "
               "again when it changes. Empty: tenants have no limits.",
               "FILE");
  settings.Add("router-count", &options.router_count, 1, 1024,
               "Number of routers N of this fleet. Each router grants 1/N of every limit of a "
               "tenant, rounded up.");
  settings.Add("tenant-window", &options.tenant_window, 1, 1 << 16,
               "With --tenants: for each worker, the largest number of requests that wait at "
               "workers for their first token. Further requests wait at the router, where tenants "
               "share the fleet by weight.");
}

}  // namespace baton
