// Policies that send equal affinity keys to the same worker, knowing nothing of caches.
//
// Thread safety: the host's lock.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "cache/cache_key.h"
#include "routing/picking_policy.h"

namespace baton {

// Equal for the requests of a session; without one (empty), for prompts of a namespace that begin
// with the same `tokens` tokens, or are the same as far as whole runs of 16 go.
uint64_t AffinityKey(CacheNamespace cache_namespace, std::string_view session,
                     std::span<const Hash128> prompt_hashes, int32_t tokens);

// Every worker has a score for every key, hashed from both; the highest takes it (rendezvous
// hashing, Thaler and Ravishankar). So a worker that goes moves its own keys alone, each to another
// worker, and one that joins takes its share from all; there is no ring to keep. Scores come from
// worker ids, so a restart moves nothing, and every router decides alike.
//
// A worker with more than `load_bound` times the mean load is passed over for the next in the key's
// order (after Mirrokni et al., "Consistent Hashing with Bounded Loads").
class ConsistentHashPolicy final : public PickingPolicy {
 public:
  using PickingPolicy::PickingPolicy;

 protected:
  const WorkerRecord& Pick(WorkerPool, Candidates candidates, const RoutingInput& input) override;
};

// A key stays where it went first, as long as that worker may be chosen; a new key goes to the
// least loaded one. Remembers the `max_sessions` keys used last.
class SessionAffinityPolicy final : public PickingPolicy {
 public:
  using PickingPolicy::PickingPolicy;

 protected:
  const WorkerRecord& Pick(WorkerPool pool, Candidates candidates,
                           const RoutingInput& input) override;

 private:
  struct Session {
    uint64_t key;
    std::array<WorkerNumber, 2> workers = {};  // by pool; 0: none yet
  };
  Session& Use(uint64_t key);

  std::list<Session> by_use_;  // the latest first
  absl::flat_hash_map<uint64_t, std::list<Session>::iterator> sessions_;
};

}  // namespace baton
