// Continuous batching with chunked prefill: decides what every step computes.
//
// A sequence has known tokens (prompt, then generated) and committed ones (KV written). A step
// gives each chosen sequence some of its known − committed tokens: one for decode, a chunk for
// prefill, all within a token budget, so a long prompt never stalls short ones. Every running
// decode has its row in every step; prefills in progress, then admissions from the bounded waiting
// queue, share the rest (prefill_share.h), by priority and arrival.
//
// Admission takes the blocks of all known tokens at once, so a prefill never stops half way. It
// needs them free or evictable, and one more for each sequence already admitted, so that decodes
// can grow before somebody must be preempted. The queue's order is strict in memory (nobody takes
// blocks that one ahead waits for, a hand-off of the same priority neither); behind a head that
// fits but would compute nothing in this step, the next few may go ahead.
//
// Priority is strict, first come first served among equals, as in vLLM: nothing ages, so while more
// important work fills the pool, less important work waits, also what was preempted for it, its
// answer standing still. What bounds that is the request's deadline (the host's), not the
// scheduler. Who runs is never preempted for who waits.
//
// When the pool runs dry the victim (lowest priority, then latest arrival, running ones only) is
// preempted by recompute: its committed blocks stay in the prefix tree as evictable, and it waits
// again, at the head of its priority. The first in order is never preempted by another, so there is
// always progress. A sequence that is alone and still cannot grow waits while a transfer or a
// sequence in kWaitingForKv may give blocks back; else it is reported in `exhausted`, in every step
// until it is finished: it ends with finish reason `length`.
//
// A sequence may be announced as one that others will be forked from (several answers to one
// prompt). Room for them is kept from its admission on: a place among the running ones each, a
// block to grow, and the blocks that they need at once. Where nobody else is admitted it need not
// wait for that room: forks that find none wait in the queue, as if preempted.
//
// A model with sliding windows has more KV groups, and all of this holds for each of them: room is
// counted by group. A window has promised a prefill what it needs to its end, and gives its blocks
// chunk by chunk. Where it cannot (its pool shrank, or a transfer reads what slid out of it), the
// sequence is preempted. What is in flight of a sequence never exceeds the cache's max_step_tokens.
//
// A step may be planned while others are in flight (submitted, not collected): behind their chunks,
// and behind the tokens that they draw. Such a token is *pending*: it counts in a sequence's
// length, and its value is not known yet.
//  - A row on a pending token never preempts or ends a sequence. Where it finds no room, it waits
//    until the token is collected. No row is planned behind a pending token that ends its sequence
//    by length.
//  - A sequence with chunks in flight is never preempted. A row that needs its blocks keeps it, and
//    all those behind itself, out of the plan, so that it can be preempted in the next one.
//  - A sequence may end at any time. Steps in flight then hold its blocks (step_holds.h).
//
// Cost of a step: O(max_running * log) plus a constant number of waiting sequences, whatever the
// queue's length. After vLLM V1's scheduler.
//
// Pure: no clock, no threads. Belongs to the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "common/strong_int.h"
#include "scheduler/step_holds.h"

namespace baton {

struct SchedulerOptions {
  int32_t token_budget = 512;      // tokens a step may compute, decode tokens included
  int32_t max_chunk_tokens = 512;  // of one sequence a step; "whole" is a large number
  int32_t max_running = 64;        // sequences with blocks, at most token_budget of them
  int32_t max_waiting = 1024;      // queue bound, for those that have not begun
  bool insert_chunks = true;       // committed blocks enter the prefix tree after every chunk
};

// At most so many tokens of one sequence are in steps that are not committed.
inline int32_t MaxStepTokens(const SchedulerOptions& options, int32_t steps_in_flight) {
  return std::min(options.max_chunk_tokens, options.token_budget) * steps_in_flight;
}

enum class SequencePhase : uint8_t {
  kWaiting,       // in the queue, no blocks
  kWaitingForKv,  // blocks reserved, KV on its way from a peer (or a tier)
  kRunning,       // has blocks, is scheduled
};

struct SequenceSpec {
  SequenceId id;
  std::vector<TokenId> tokens;  // the prompt
  CacheNamespace cache_namespace;
  int32_t max_tokens = 0;   // largest length, prompt included
  int32_t priority = 0;     // higher first
  int32_t forks = 0;        // sequences that will be forked from it
  int32_t fork_blocks = 0;  // that all of these will need at once, beside one each to grow
};

struct ScheduledChunk {
  SequenceId id;
  int32_t begin = 0;  // first slot computed in this step
  int32_t count = 0;  // tokens
  bool samples =
      false;  // the chunk ends at the last known token: its last row's logits are sampled
  bool pending = false;  // it is one token, which a step in flight draws
  // Set by the caller before StepSubmitted: the step itself draws the token behind the chunk, and
  // the sequence goes on with it. REQUIRES: samples.
  bool draws_next = false;
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
  // Sequences that are left are finished.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a sequence. ResourceExhausted: queue full (both numbers). InvalidArgument: the prompt
  // can never fit the pool (both numbers), empty, or max_tokens < prompt.
  absl::Status Add(SequenceSpec spec);

  // Who has to leave a full queue so that Add can take `spec`: the last in it that is of lower
  // priority and has not begun. None when there is room, nobody matters less, or Add would refuse
  // `spec` for itself.
  std::optional<SequenceId> ToDisplace(const SequenceSpec& spec) const;

  // Admits a sequence at once and outside the queue, with its blocks reserved for the whole prompt,
  // in phase kWaitingForKv: the decode side of a hand-off. Returns nothing taken and
  // ResourceExhausted when there is no room beside what the head of the queue waits for, or
  // somebody of higher priority waits. After success matched()/BlockTable() of the cache tell what
  // is missing.
  absl::Status AddWaitingForKv(SequenceSpec spec);
  // The KV of slots [0, committed) has landed and was verified. The sequence runs from there (it
  // recomputes whatever is not committed: a failed transfer reports what it has, or matched()).
  // When the whole prompt is committed, the first token came with it: AppendToken it before
  // Schedule.
  void KvArrived(SequenceId id, int32_t committed);

  // The pool's size has changed. Returns who waits in the queue and can never be admitted any more,
  // in its order: it is for the caller to Finish them. (Running ones that the pool can no longer
  // hold become `exhausted` once they have to grow.)
  std::vector<SequenceId> PoolResized();
  // Blocks that an admission needs to be possible at all: of all known tokens, or in contiguous
  // mode of the largest length.
  int32_t BlocksToBegin(SequenceId id) const;

  // An output without chunks means that nothing can run until an event, a transfer or a step in
  // flight ends the wait. A step that is neither submitted nor committed is scheduled again.
  SchedulerOutput Schedule();
  // The step is in flight: the next plan begins behind its chunks.
  void StepSubmitted(const SchedulerOutput& output);
  // The oldest step in flight, which `output` planned, is over. Whatever it computed for sequences
  // that live is then committed with CommitStep, or they are finished.
  void StepCollected(const SchedulerOutput& output);
  // The step's KV writes are done: commits every chunk (and inserts it, if so set). Sequences
  // removed in between are skipped.
  void CommitStep(const SchedulerOutput& output);
  // Appends a sampled token (known, not committed), which takes the place of a pending one. One
  // past max_tokens makes the sequence `exhausted`.
  void AppendToken(SequenceId id, TokenId token);
  // Appends tokens that were sampled elsewhere, with the blocks for all of them; where there are
  // none, the sequence waits at the head of its priority. REQUIRES: not waiting for KV, nothing in
  // flight.
  void AppendTokens(SequenceId id, std::span<const TokenId> tokens);
  // Starts `child` behind the same tokens, sharing the blocks of `parent`; where it cannot (no
  // place among the running, contiguous mode), it waits at the head of its priority and computes
  // them again. REQUIRES: the parent runs, all its tokens are committed, child is new.
  void Fork(SequenceId parent, SequenceId child);
  // Ends a sequence in any phase: the one exit; see KvCacheManager::Release. Steps in flight that
  // compute some of it hold its blocks until they are collected.
  void Finish(SequenceId id, bool keep_cached);

  bool Contains(SequenceId id) const;
  SequencePhase phase(SequenceId id) const;
  int32_t priority(SequenceId id) const;
  std::span<const TokenId> tokens(SequenceId id) const;  // valid until the sequence changes
  int32_t waiting_count() const;
  int32_t running_count() const;
  int32_t waiting_for_kv_count() const;
  int64_t preemption_count() const;
  // A call to Schedule could produce a chunk, or names a sequence as exhausted. False after one
  // that produced nothing, until something has changed.
  bool has_work() const;
  StepHolds& step_holds() { return step_holds_; }
  const StepHolds& step_holds() const { return step_holds_; }

 private:
  // Place among waiting or running sequences: first is served first and preempted last.
  struct Order {
    int32_t priority = 0;
    bool resumes = false;  // preempted before: ahead of its priority's newer ones
    uint64_t arrival = 0;
    int32_t fork = 0;  // forks have their parent's arrival
    bool operator<(const Order& other) const;
  };
  struct Sequence {
    SequenceSpec spec;  // its tokens grow
    SequencePhase phase = SequencePhase::kWaiting;
    Order order;
    int32_t forked = 0;
    int32_t in_flight = 0;  // tokens in chunks in flight, behind the committed ones
    int32_t pending = 0;    // tokens that steps in flight draw
    int64_t last_step = 0;  // the youngest that computes some of it
    int32_t known() const { return static_cast<int32_t>(spec.tokens.size()) + pending; }
  };
  struct Prefill {
    Sequence* sequence;
    int32_t remaining;  // tokens to compute
  };
  // What one that is ahead will take.
  struct Claim {
    int32_t places = 0;
    BlockCounts blocks;
  };
  enum class Room : uint8_t {
    kReady,
    kNone,  // it waits
    kPreemptedItself,
    kAfterCollect,  // it waits for a sequence that can be preempted once nothing of it is in flight
  };

  Sequence& Get(SequenceId id);
  const Sequence& Get(SequenceId id) const;
  absl::Status CheckCanEverFit(const SequenceSpec& spec) const;
  absl::Status CheckRoomForHandOff(const SequenceSpec& spec) const;
  Claim ClaimOfHead(const SequenceSpec& newcomer) const;
  BlockCounts BlocksToAdmit(const SequenceSpec& spec) const;
  Sequence& Remember(SequenceSpec spec, SequencePhase phase, Order order);
  // Whether its forks have room too, beside `admitted` others and of the blocks that are left.
  bool RoomForForks(const SequenceSpec& spec, int32_t admitted, const BlockCounts& available) const;
  BlockCounts BlocksOfForks(const SequenceSpec& spec) const;
  absl::Status TakeBlocks(const Sequence& sequence, bool imports);
  bool CannotGrow(const Sequence& sequence) const;
  int32_t TokensToBegin(const Sequence& sequence) const;
  bool CanNeverBegin(const Sequence& sequence) const;

  // Tokens that the next plan computes of it at most.
  int32_t Remaining(const Sequence& sequence) const {
    return sequence.known() - sequence.in_flight - cache_->committed(sequence.spec.id);
  }
  bool InFlight(const Sequence& sequence) const { return step_holds_.InFlight(sequence.last_step); }
  void InsertCommitted(const Sequence& sequence);

  // False: what is left of the plan has to wait for steps in flight.
  bool ScheduleDecodes(SchedulerOutput& output);
  Room RoomForPending(const Sequence& sequence);
  Room MakeRoom(Sequence& sequence, SchedulerOutput& output);
  void Preempt(Sequence& sequence, SchedulerOutput& output);
  void Requeue(Sequence& sequence);
  void SchedulePrefills(SchedulerOutput& output);
  std::vector<Prefill> PrefillsInProgress() const;
  void AddAdmissible(std::vector<Prefill>& prefills, SchedulerOutput& output) const;
  std::vector<int32_t> ShareOut(std::span<const Prefill> prefills, int32_t budget) const;
  bool AdmitThoseWithAShare(std::span<const Prefill> prefills, std::span<const int32_t> share,
                            SchedulerOutput& output);
  bool Admit(Sequence& sequence, SchedulerOutput& output);
  void AddChunk(const Sequence& sequence, int32_t count, SchedulerOutput& output) const;
  int32_t new_waiting_count() const { return waiting_count() - preempted_waiting_; }
  int32_t admitted_count() const { return running_count() + waiting_for_kv_ + promised_forks_; }

  const SchedulerOptions options_;
  const int32_t max_running_;
  KvCacheManager* const cache_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::map<Order, Sequence*> waiting_;
  std::map<Order, Sequence*> running_;
  int32_t waiting_for_kv_ = 0;
  int32_t preempted_waiting_ = 0;
  int32_t promised_forks_ = 0;  // of admitted sequences
  int64_t preemptions_ = 0;
  uint64_t arrivals_ = 0;
  // The pool as it was when a Schedule produced nothing. Any event resets it.
  struct PoolState {
    BlockCounts available;
    int32_t in_transfer = 0;
    bool operator==(const PoolState&) const = default;
  };
  PoolState Pool() const { return {cache_->AvailableBlocks(), cache_->blocks_in_transfer()}; }
  std::optional<PoolState> blocked_at_;
  StepHolds step_holds_;
};

}  // namespace baton
