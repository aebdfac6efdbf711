// Admission control: queues sequences in the scheduler, and drops queued requests or leases when
// there is no room.
//
// Rules:
//  1. If the queue is full, a sequence of higher priority displaces a queued one. The displaced
//     request ends with ResourceExhausted.
//  2. Leases of pulled prefixes (prefix_pull.h) are dropped when sequences find no room.
//
// Thread safety: engine thread only.
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

  // All pointers must outlive this. `end_request` ends a live request with an error.
  Admission(const KvCacheManager* cache, Scheduler* scheduler, PrefixPulls* pulls,
            EndRequest end_request);

  // Queues a sequence (Scheduler::Add). May displace a queued request (rule 1).
  absl::Status Queue(SequenceSpec spec);
  // Admits a sequence at once because its KV comes from a peer (Scheduler::AddWaitingForKv). Drops
  // the leases if that makes room for it. With `queues`, a sequence without room waits in the queue
  // (SequenceSpec::awaits_kv).
  absl::Status AdmitForKv(SequenceSpec spec, bool queues);
  // Drops all leases if `plan` shows that sequences lack room. `in_flight`: number of steps in
  // flight. Call it once for each planned step.
  void YieldLeases(const SchedulerOutput& plan, int32_t in_flight);

  // Returns the error for a prompt that does not fit the pool: ResourceExhausted, with the numbers.
  // REQUIRES: the scheduler has the sequence.
  absl::Status Exhausted(SequenceId id, int32_t prompt_tokens) const;
  // Number of blocks that prefix pulls leave free: one for each sequence in the scheduler, so that
  // it can grow.
  int32_t SpareBlocks() const;

 private:
  const KvCacheManager* const cache_;
  Scheduler* const scheduler_;
  PrefixPulls* const pulls_;
  const EndRequest end_request_;
};

}  // namespace baton
