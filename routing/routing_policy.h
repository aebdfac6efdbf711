// Where a request runs: which decode worker takes it, whether a prefill worker computes the prompt
// for it, and how long that will keep the computing worker.
//
// A policy is one way to choose among the workers that may be chosen; who may be is the same for
// all of them:
//  - A decode worker that is usable (reachable, not draining) and has not refused this request.
//  - A prefill worker that is usable, is not the decode worker, and may hand over to it
//    (worker_match.h). Block sizes and layouts of the two may differ, with a limit for models with
//    several KV groups.
//  - The decode worker computes the prompt itself when the caller says so, when there is no such
//    prefill worker, or when that takes less time than having it computed elsewhere and shipped
//    (route_cost.h), whatever the policy.
//
// What a policy knows comes in with the question: a snapshot of the fleet, what is cached where,
// the time. Its own state (turns, sessions, a random engine) lives in it and begins from a seed, so
// equal questions in equal order get equal answers.
//
// Thread safety: the host's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "routing/throughput_model.h"
#include "routing/worker_registry.h"

namespace baton {

enum class Placement : uint8_t { kAutomatic, kRemote, kLocal };

// Every policy's name in settings and figures, the default first.
const std::vector<std::string>& RoutingPolicyNames();

struct RoutingOptions {
  std::string policy = "kv-aware";  // of RoutingPolicyNames()
  int64_t seed = 0;                 // of random choices
  // At most so many uncached tokens are always computed on the decode worker.
  int32_t local_prefill_tokens = 16;
  // At most so many uncached tokens are a next turn, computed where the turns before are unless
  // those who wait there take longer than the prefill worker. What is more, or begins cold, costs
  // `local_prefill_penalty` times its time extra on a decode worker: the sequences that decode
  // there wait meanwhile.
  int32_t local_continuation_tokens = 512;
  double local_prefill_penalty = 0.5;
  // A prompt's computing counts so many times its time: it keeps others waiting as well.
  double compute_weight = 1.5;
  // The answer's decoding among neighbours counts so many times its time.
  double decode_weight = 0.1;
  // Consistent hash: a worker has at most so many times the mean load.
  double load_bound = 1.25;
  // An affinity key without a session covers so many tokens of the prompt's beginning.
  int32_t affinity_tokens = 1024;
  // Session affinity: keys that are remembered, the ones used last.
  int32_t max_sessions = 1 << 16;
  // A missing prefix is pulled from a worker that has it when that costs less than computing it,
  // where a pull's estimated time counts pull_weight times.
  bool pull_prefixes = true;
  double pull_weight = 1;
};

struct RoutingInput {
  int32_t prompt_tokens = 0;
  Placement placement = Placement::kAutomatic;
  // Prompt tokens that a worker probably has cached: a hint.
  absl::flat_hash_map<WorkerNumber, int32_t> cached_tokens;
  // Names the longest prefix of the prompt that any worker has cached: equal for prompts that share
  // it. 0: none, or not known.
  uint64_t held_prefix = 0;
  // Decode workers that cannot take this request: it did not want them, or they it.
  absl::flat_hash_set<WorkerNumber> excluded;
  // The decode worker must have this one; empty: any. An answer that was begun elsewhere goes on
  // with the same bits only under the fingerprint it was begun under.
  std::string fingerprint = {};
  std::string backend = {};  // with `fingerprint`
  // Equal for requests that should meet the same worker: a session's, or that of a shared prefix.
  uint64_t affinity_key = 0;
};

// The prompt's first `tokens` tokens are in the cache of `from`, and pulling what is missing of
// them at the worker that computes the prompt costs less than computing it there.
struct PrefixPull {
  WorkerNumber from{0};
  int32_t tokens = 0;
  int64_t us = 0;  // what it is expected to take

  bool operator==(const PrefixPull&) const = default;
};

struct RoutePlan {
  WorkerNumber decode;
  std::optional<WorkerNumber> prefill;  // none: the decode worker prefills
  std::optional<PrefixPull> pull = {};  // only with RoutingOptions::pull_prefixes
  PrefillWork work = {};                // of the worker that prefills

  WorkerNumber prefiller() const { return prefill.value_or(decode); }
};

// The fleet at one moment. All must outlive the call.
struct FleetView {
  std::span<const WorkerRecord> workers;
  const ThroughputModel* speeds;
  int64_t now_us;
};

class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  // Unavailable: no decode worker, or no prefill worker although one is demanded.
  virtual absl::StatusOr<RoutePlan> Choose(const RoutingInput& input, const FleetView& fleet) = 0;
};

// REQUIRES: a policy of that name, load_bound >= 1, max_sessions >= 1.
std::unique_ptr<RoutingPolicy> MakeRoutingPolicy(const RoutingOptions& options);

// The rule of who may be chosen, as above.
bool MayDecode(const RoutingInput& input, const WorkerRecord& worker);
bool MayPrefillFor(const WorkerRecord& decode, const WorkerRecord& worker);

// Why there is no plan.
absl::Status NoWorkerError(Placement placement);

}  // namespace baton
