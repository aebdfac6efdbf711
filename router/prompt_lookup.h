// Looks up how much of a prompt each worker has cached, according to the fleet's index and to
// predictions. The answers are hints.
//
// Thread safety: belongs to one thread. The constructor asks the index, so call it without a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache/cache_key.h"
#include "router/chunked_request.h"
#include "router/fleet_index.h"
#include "router/predicted_prefixes.h"
#include "routing/chunk_holdings.h"
#include "routing/worker_registry.h"

namespace baton {

// The workers that a look-up asks about, in a large fleet.
struct LookupLimits {
  size_t most = 0;    // workers with the most of the prompt, or of a part of it
  uint64_t turn = 0;  // GlobalIndex::MatchSome
  std::span<const WorkerNumber> also = {};
};

class PromptLookup {
 public:
  // `hashes`: of the prompt's units; of a chunked prompt, those of its question. `chunked` may be
  // null. Without limits, it asks about all workers. REQUIRES: all outlive this.
  PromptLookup(const FleetIndex& index, std::span<const Hash128> hashes,
               const ChunkedRequest* chunked, const LookupLimits* limits = nullptr);

  struct Cached {
    absl::flat_hash_map<WorkerNumber, int32_t> tokens;
    // Identifies the longest prefix that a worker has; 0: none, or the prompt is chunked.
    uint64_t held_prefix = 0;
  };
  Cached Of(PredictedPrefixes& predicted, int64_t now_us);
  // Null for an ordinary prompt.
  const ChunkHoldings* chunks() const { return chunks_ ? &*chunks_ : nullptr; }

 private:
  void AddParts(const FleetIndex& index);
  SomeHolders Match(const FleetIndex& index, std::span<const Hash128> hashes) const;

  const std::span<const Hash128> hashes_;
  const LookupLimits* const limits_;
  std::vector<int32_t> begins_;  // PredictedPrefixes::ExtendSome; only with limits
  const ChunkedRequest* const chunked_;
  absl::flat_hash_map<WorkerNumber, int32_t> units_;  // of `hashes`
  absl::flat_hash_map<WorkerNumber, int64_t> part_tokens_;
  std::optional<ChunkHoldings> chunks_;
};

}  // namespace baton
