// Policies that send equal affinity keys to the same worker. They know nothing of caches.
//
// Thread safety: the host locks.
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

// Returns the affinity key of a request. With a session, it is equal for all requests of the
// session. With an empty session, it is equal for prompts of one namespace that have the same first
// `tokens` tokens. Shorter prompts are compared by whole runs of 16 tokens.
uint64_t AffinityKey(CacheNamespace cache_namespace, std::string_view session,
                     std::span<const Hash128> prompt_hashes, int32_t tokens);

// Consistent hashing with bounded load. Each worker has a score for each key, hashed from both. The
// worker with the highest score takes the key (rendezvous hashing, Thaler and Ravishankar). When a
// worker leaves, only its own keys move, each to some other worker. A worker that joins takes its
// share from all others. There is no ring to maintain. Scores depend on worker ids only. So a
// restart moves nothing, and every router decides the same.
//
// A worker with more than `load_bound` times the mean load is skipped, and the next one in the
// key's order is used. After Mirrokni et al., "Consistent Hashing with Bounded Loads".
class ConsistentHashPolicy final : public PickingPolicy {
 public:
  using PickingPolicy::PickingPolicy;

 protected:
  const WorkerRecord& Pick(WorkerPool, Candidates candidates, const RoutingInput& input) override;
};

// Sends a key to the worker that it went to first, while that worker is a candidate. A new key goes
// to the least loaded worker. Remembers the `max_sessions` most recently used keys.
class SessionAffinityPolicy final : public PickingPolicy {
 public:
  using PickingPolicy::PickingPolicy;

 protected:
  const WorkerRecord& Pick(WorkerPool pool, Candidates candidates,
                           const RoutingInput& input) override;

 private:
  struct Session {
    uint64_t key;
    std::array<WorkerNumber, 2> workers = {};  // by pool; 0 means none yet
  };
  Session& Use(uint64_t key);

  std::list<Session> by_use_;  // most recently used first
  absl::flat_hash_map<uint64_t, std::list<Session>::iterator> sessions_;
};

}  // namespace baton
