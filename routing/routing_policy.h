// Interface of routing policies. A route names the decode worker that takes a request and the
// prefill worker that computes its prompt, if any. It also has the expected time of that work.
//
// A policy chooses among the permitted workers. The permission rules are the same for all policies:
//  - The decode worker is usable (reachable, not draining), has not refused this request, and has
//    enough room for it (RoomDemand).
//  - The prefill worker is usable, is not the decode worker, and may hand over to it
//    (worker_match.h). Their block sizes and layouts may differ, with a limit for models with
//    several KV groups.
//  - The decode worker computes the prompt itself in three cases: the caller demands it, no such
//    prefill worker exists, or that takes less time than computing elsewhere and transferring
//    (route_cost.h).
//  - A chunked prompt goes only to workers that take it (RoutingInput::chunk_repair).
//
// All input of a policy comes with the call: a snapshot of the fleet, the cached prefixes and the
// time. A policy has only its own state (turns, sessions, a random engine), which starts from a
// seed. So equal calls in equal order return equal results.
//
// Thread safety: the host locks.
#pragma once

#include <cstddef>
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
#include "common/prompt_chunks.h"
#include "routing/chunk_holdings.h"
#include "routing/prompt_shape.h"
#include "routing/throughput_model.h"
#include "routing/worker_registry.h"

namespace baton {

enum class Placement : uint8_t { kAutomatic, kRemote, kLocal };

// Names of all policies in settings and figures, the default first.
const std::vector<std::string>& RoutingPolicyNames();

struct RoutingOptions {
  std::string policy = "kv-aware";  // one of RoutingPolicyNames()
  int64_t seed = 0;                 // for random choices
  // A prompt with at most this many uncached tokens is always computed on the decode worker.
  int32_t local_prefill_tokens = 16;
  // At most this many uncached tokens make a next turn. It is computed where the earlier turns are,
  // unless the backlog there takes longer than the prefill worker. A larger or cold prompt on a
  // decode worker costs `local_prefill_penalty` times its time extra, because the sequences that
  // decode there wait meanwhile.
  int32_t local_continuation_tokens = 512;
  double local_prefill_penalty = 0.5;
  // Weight of a prompt's computing time. It is more than 1, because computing also delays others.
  double compute_weight = 1.5;
  // Computing a prompt on a worker that decodes delays each of its answers. Weight of that delay,
  // the sum over the answers.
  double answer_delay_weight = 0.05;
  // Weight of the prompts that other routers may be sending to a worker (route_cost.h).
  double away_weight = 3;
  // Weight of the time to decode the answer in the worker's batch.
  double decode_weight = 0.1;
  // Consistent hash: a worker gets at most this many times the mean load.
  double load_bound = 1.25;
  // Number of tokens at the prompt's beginning that form the affinity key of a request without
  // session.
  int32_t affinity_tokens = 1024;
  // Session affinity: number of recently used keys to remember.
  int32_t max_sessions = 1 << 16;
  // Pull a missing prefix from a worker that has it, if that costs less than computing it.
  // pull_weight is the weight of a pull's estimated time.
  bool pull_prefixes = true;
  double pull_weight = 1;
  // In a fleet of more workers than this, a decision of the policy kv-aware looks only at about so
  // many (worker_candidates.h). 0: at all. The other policies always look at all.
  int32_t candidates = 64;
};

// Decode workers must hold this much of a sequence.
struct RoomDemand {
  int64_t sequence_tokens = 0;         // of prompt and answer
  const PromptShape* shape = nullptr;  // of a chunked prompt; null: an ordinary one
  int64_t least = 0;                   // tokens of the sequence; 0: any worker will do

  int64_t RoomOn(const WorkerReport& worker) const {
    return shape == nullptr ? worker.RoomFor(sequence_tokens)
                            : worker.RoomFor(sequence_tokens, *shape);
  }
};

struct RoutingInput {
  int32_t prompt_tokens = 0;
  Placement placement = Placement::kAutomatic;
  // Prompt tokens that each worker probably has cached. These are hints.
  absl::flat_hash_map<WorkerNumber, int32_t> cached_tokens;
  // Identifies the longest prefix of the prompt that any worker has cached. Equal for prompts that
  // share it. 0: none, or unknown.
  uint64_t held_prefix = 0;
  // Decode workers that cannot take this request, for example because they refused it.
  absl::flat_hash_set<WorkerNumber> excluded;
  RoomDemand room = {};
  // Fingerprint that the decode worker must have; empty accepts any. An answer that began on
  // another worker continues with the same bits only under the same fingerprint.
  std::string fingerprint = {};
  std::string backend = {};  // used with `fingerprint`
  // Equal for requests that should go to the same worker: those of a session or a shared prefix.
  uint64_t affinity_key = 0;
  // Repair of a chunked prompt; nullopt for an ordinary prompt. Only workers that take such prompts
  // may decode it, and it is computed elsewhere only if both workers hand them over.
  std::optional<ChunkRepair> chunk_repair = {};
  // Of a chunked prompt: what the workers have of its chunks. Null: nothing is pulled.
  const ChunkHoldings* chunks = nullptr;
};

// A pull of a cached prefix: `from` has the prompt's first `tokens` tokens. Pulling the missing
// part to the worker that computes the prompt costs less than computing it there. Of a chunked
// prompt, chunks are pulled; then `tokens` are those that the receiver lacks.
struct PrefixPull {
  WorkerNumber from{0};
  int32_t tokens = 0;
  int64_t us = 0;  // expected time

  bool operator==(const PrefixPull&) const = default;
};

struct RoutePlan {
  WorkerNumber decode;
  std::optional<WorkerNumber> prefill;  // nullopt: the decode worker prefills
  std::optional<PrefixPull> pull = {};  // only with RoutingOptions::pull_prefixes
  PrefillWork work = {};                // of the worker that prefills
  // Expected time from now to the first token, without weights; 0: unknown. For measuring the
  // estimates.
  int64_t first_token_us = 0;
  // The most tokens of the prompt that one usable worker has cached and would use: whole blocks,
  // and never the last token.
  int64_t held_tokens = 0;

  WorkerNumber prefiller() const { return prefill.value_or(decode); }
};

// State of the fleet at one moment. REQUIRES: everything outlives the call.
struct FleetView {
  std::span<const WorkerRecord> workers;
  const ThroughputModel* speeds;
  int64_t now_us;
  // Places in `workers`, rising, of those that the decision looks at. Empty: all of them.
  std::span<const int32_t> candidates = {};
  // The inverse: candidate_at[candidates[i]] is i. Its other elements have no meaning.
  std::span<const int32_t> candidate_at = {};

  size_t size() const { return candidates.empty() ? workers.size() : candidates.size(); }
  // REQUIRES: i < size().
  const WorkerRecord& At(size_t i) const {
    return workers[candidates.empty() ? i : static_cast<size_t>(candidates[i])];
  }
  // The inverse of At. REQUIRES: the decision looks at the worker.
  size_t PlaceOf(const WorkerRecord& worker) const {
    const auto place = static_cast<size_t>(&worker - workers.data());
    return candidates.empty() ? place : static_cast<size_t>(candidate_at[place]);
  }
};

class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  // Unavailable: there is no decode worker, or no prefill worker although the placement demands
  // one.
  virtual absl::StatusOr<RoutePlan> Choose(const RoutingInput& input, const FleetView& fleet) = 0;
  // False: the fleet of Choose must have no `candidates`, because the policy needs all workers.
  virtual bool TakesCandidates() const { return false; }
};

// REQUIRES: options.policy is a known name, load_bound >= 1, max_sessions >= 1.
std::unique_ptr<RoutingPolicy> MakeRoutingPolicy(const RoutingOptions& options);

// The permission rules above.
// False if the worker would refuse a prompt of this kind.
bool TakesPrompt(const RoutingInput& input, const WorkerRecord& worker);
bool MayDecode(const RoutingInput& input, const WorkerRecord& worker);
// MayPrefill is the part that does not depend on the decode worker.
bool MayPrefill(const RoutingInput& input, const WorkerRecord& worker);
bool MayPrefillFor(const RoutingInput& input, const WorkerRecord& decode,
                   const WorkerRecord& worker);
// True if the chunks of the request's prompt may be pulled to this worker or from it.
bool MovesChunks(const RoutingInput& input, const WorkerRecord& worker);
// True if the request's prompt may be computed on one worker and decoded on another, as far as that
// depends on this worker. A prompt with a repair is computed where it is decoded.
bool HandsOver(const RoutingInput& input, const WorkerRecord& worker);

// The error for a request without a possible route.
absl::Status NoWorkerError(Placement placement);

}  // namespace baton
