// Where a request runs: the decode worker that has to compute and wait least, and whether a prefill
// worker should help.
//
// Cost of a worker, in tokens: prompt tokens that its caches do not hold + load × tokens_per_load
// (what one more neighbour costs), and far more when its pool cannot hold the prompt. The cheapest
// wins; among equals the one with fewest requests so far, then the smaller number. KV-aware routing
// by cost follows NVIDIA Dynamo's router (overlap blocks against load).
//
// A prompt is prefilled on the decode worker itself when what is missing there is so short that
// shipping costs more than computing; when it holds more of the prompt than the prefill worker does
// (or as much, and at least half) and not too much is left (the next turn of a chat: only the new
// tokens are computed); when no prefill worker with an equal fingerprint is there; or when the
// caller says so.
//
// Thread safety: pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "router/worker_registry.h"

namespace baton {

enum class Placement : uint8_t { kAutomatic, kRemote, kLocal };

struct RoutingOptions {
  int32_t local_prefill_tokens =
      16;  // uncached tokens that are always computed on the decode worker
  int32_t local_continuation_tokens = 512;  // the same where it holds more than the prefill worker
  int32_t tokens_per_load = 64;
};

struct RoutingInput {
  int32_t prompt_tokens = 0;
  Placement placement = Placement::kAutomatic;
  // Prompt tokens that a worker probably has cached: a hint.
  absl::flat_hash_map<WorkerNumber, int32_t> cached_tokens;
  // Decode workers that refused this request already.
  absl::flat_hash_set<WorkerNumber> excluded;
};

struct RoutePlan {
  WorkerNumber decode;
  std::optional<WorkerNumber> prefill;  // none: the decode worker prefills
};

// Unavailable: no decode worker, or no prefill worker although one is demanded.
absl::StatusOr<RoutePlan> ChooseRoute(const RoutingOptions& options, const RoutingInput& input,
                                      std::span<const WorkerRecord> workers);

}  // namespace baton
