// Admits sequences to the scheduler, and drops queued requests or leases to make room.
//
// Rules:
//  1. A full queue takes a sequence of higher priority: the request of the one that leaves the
//     queue for it ends.
//  2. Leases of pulled prefixes (prefix_pull.h) give way to sequences that find no room.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "engine/prefix_pull.h"
#include "engine/request.h"
#include "scheduler/scheduler.h"

namespace baton {

class Admission {
 public:
  using EndRequest = std::function<void(RequestHandle, const absl::Status&)>;

  // All outlive this. `end_request` ends a live request with an error.
  Admission(const KvCacheManager* cache, Scheduler* scheduler, PrefixPulls* pulls,
            EndRequest end_request);

  // Queues a sequence (Scheduler::Add).
  absl::Status Queue(SequenceSpec spec);
  // Admits at once a sequence whose KV comes from a peer (Scheduler::AddWaitingForKv).
  absl::Status AdmitForKv(SequenceSpec spec);
  // A step is planned: `plan` says whether sequences found no room. `in_flight`: steps.
  void YieldLeases(const SchedulerOutput& plan, int32_t in_flight);

  // Why a request ends whose prompt the pool cannot hold: ResourceExhausted, with the numbers.
  // REQUIRES: the scheduler has the sequence.
  absl::Status Exhausted(SequenceId id, int32_t prompt_tokens) const;
  // A block for each sequence that is here, so that it can grow: pulls leave them free.
  int32_t SpareBlocks() const;

 private:
  const KvCacheManager* const cache_;
  Scheduler* const scheduler_;
  PrefixPulls* const pulls_;
  const EndRequest end_request_;
};

}  // namespace baton
