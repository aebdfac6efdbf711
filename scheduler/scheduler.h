// Continuous batching with chunked prefill: decides what every step computes.
//
// A sequence has known tokens (prompt, then generated) and committed ones (KV written). A step
// gives each chosen sequence some of its known − committed tokens: one for decode, a chunk for
// prefill, all within a token budget, so a long prompt never stalls short ones. Running decodes
// come first, then prefills in progress, then admissions from the bounded waiting queue, by
// priority and arrival.
//
// When the pool runs dry the victim (lowest priority, then latest arrival) is preempted by
// recompute: its committed blocks stay in the prefix tree as evictable, and it waits again, at the
// head of its priority. A sequence that is alone and still cannot grow is reported in `exhausted`:
// it ends with finish reason `length`.
//
// Pure: no clock but the one handed in, no threads. Belongs to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "common/strong_int.h"

namespace baton {

struct SchedulerOptions {
  int32_t token_budget = 512;      // tokens a step may compute, decode tokens included
  int32_t max_chunk_tokens = 512;  // of one sequence a step; "whole" is a large number
  int32_t max_running = 64;        // sequences in a step
  int32_t max_waiting = 1024;      // queue bound
  bool insert_chunks = true;       // committed blocks enter the prefix tree after every chunk
};

enum class SequencePhase : uint8_t {
  kWaiting,       // in the queue, no blocks
  kWaitingForKv,  // blocks reserved, KV on its way from a peer (or a tier)
  kRunning,       // has blocks, is scheduled
};

struct SequenceSpec {
  SequenceId id;
  std::vector<TokenId> tokens;  // the prompt
  CacheNamespace cache_namespace;
  int32_t max_tokens = 0;  // largest length, prompt included
  int32_t priority = 0;    // higher first
};

struct ScheduledChunk {
  SequenceId id;
  int32_t begin = 0;  // first slot computed in this step
  int32_t count = 0;  // tokens
  bool samples =
      false;  // the chunk ends at the last known token: its last row's logits are sampled
};

struct SchedulerOutput {
  std::vector<ScheduledChunk> chunks;  // decode rows (count 1) first
  std::vector<SequenceId>
      admitted;  // left the queue in this step (their matched() is their cached tokens)
  std::vector<SequenceId> preempted;  // back to waiting
  std::vector<SequenceId> exhausted;  // cannot grow and nothing is left to evict or preempt
  int32_t total_tokens = 0;
};

class Scheduler {
 public:
  // REQUIRES: options valid; cache outlives the scheduler.
  Scheduler(const SchedulerOptions& options, KvCacheManager* cache);
  ~Scheduler();

  // Queues a sequence. ResourceExhausted: queue full (both numbers). InvalidArgument: the prompt
  // can never fit the pool (both numbers), empty, or max_tokens < prompt.
  absl::Status Add(SequenceSpec spec);

  // Admits a sequence at once and outside the queue, with its blocks reserved for the whole prompt,
  // in phase kWaitingForKv: the decode side of a hand-off. Returns nothing taken and
  // ResourceExhausted when there is no room. After success matched()/BlockTable() of the cache tell
  // what is missing.
  absl::Status AddWaitingForKv(SequenceSpec spec);
  // The KV of slots [0, committed) has landed and was verified. The sequence runs from there (it
  // recomputes whatever is not committed).
  void KvArrived(SequenceId id, int32_t committed);

  SchedulerOutput Schedule();
  // The step's KV writes are done: commits every chunk (and inserts it, if so set). Sequences
  // removed in between are skipped.
  void CommitStep(const SchedulerOutput& output);
  // Appends a sampled token (known, not committed).
  void AppendToken(SequenceId id, TokenId token);
  // Ends a sequence in any phase: the one exit; see KvCacheManager::Release.
  void Finish(SequenceId id, bool keep_cached);

  bool Contains(SequenceId id) const;
  SequencePhase phase(SequenceId id) const;
  std::span<const TokenId> tokens(SequenceId id) const;  // valid until the sequence changes
  int32_t waiting_count() const;
  int32_t running_count() const;
  int32_t waiting_for_kv_count() const;
  int64_t preemption_count() const;
  bool has_work() const;  // a call to Schedule could produce a chunk
};

}  // namespace baton
