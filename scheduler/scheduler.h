// Continuous batching with chunked prefill: decides what every step computes.
//
// Terms: a sequence has known tokens (the prompt, then generated ones) and committed tokens (their
// KV is written). A step computes some of the known but not committed tokens of each chosen
// sequence: one for a decode, a chunk for a prefill.
//
// A step has a token budget, so a long prompt never stalls short ones. Every running decode has a
// row in every step. Prefills in progress and then new admissions share the rest of the budget
// (prefill_share.h), by priority and arrival. While a sequence decodes, that rest is at most
// SchedulerOptions::mixed_prompt_tokens.
//
// Admission takes the blocks of all known tokens at once, so a prefill never stops half way. The
// blocks must be free or evictable. One more block must be available for each admitted sequence, so
// that decodes can grow before a preemption is needed. The queue's order is strict for memory: no
// sequence takes blocks that one ahead of it waits for. This includes hand-offs of the same
// priority. If the head fits but would compute nothing in this step, the next few sequences may go
// ahead. Hand-offs are admitted outside the queue, or wait in it (SequenceSpec::awaits_kv). A
// waiting one needs blocks and a place, but no share of the budget. No sequence of its priority
// passes it, and no other hand-off.
//
// Priority is strict, and first come first served among equals, as in vLLM. There is no aging. So
// while more important work fills the pool, less important work waits, including preempted
// sequences with a partial answer. Only the request's deadline, which the host enforces, bounds
// that wait. A waiting sequence never preempts a running one.
//
// If the pool is exhausted, a sequence is preempted. The victim is the running sequence with the
// lowest priority, then the latest arrival. It is preempted by recompute: its committed blocks stay
// in the prefix tree as evictable, and it waits again at the head of its priority. No other
// sequence preempts the first in order, so there is always progress. A sequence that is alone and
// still cannot grow waits while a transfer or a sequence in kWaitingForKv may free blocks.
// Otherwise it is reported in `exhausted` in every step until it is finished. It ends with finish
// reason `length`.
//
// A sequence may announce forks (several answers to one prompt). From its admission on, room for
// them is kept. Each fork needs a place among the running sequences and a block to grow. Together
// they also need the blocks of their parts that are not shared. If no other sequence is admitted,
// it need not wait for that room. A fork without room waits in the queue, like a preempted
// sequence.
//
// A model with sliding windows has more KV groups, and these rules hold for each group: room is
// counted by group. A window charges a prefill for its largest need, and hands out blocks chunk by
// chunk. If it cannot (its pool shrank, or a transfer reads blocks that slid out), the sequence is
// preempted. A sequence's tokens in flight never exceed the cache's max_step_tokens.
//
// A step may be planned while others are in flight, which means submitted but not collected. It
// starts after their chunks and after the tokens that they sample. Such a token is *pending*: it
// counts in the sequence's length, but its value is not known yet.
//  - A row on a pending token never preempts or ends a sequence. If it has no room, it waits until
//    the token is collected. No row is planned after a pending token that ends its sequence by
//    length.
//  - A sequence with chunks in flight is never preempted. If a row needs its blocks, that row and
//    all later ones are left out of the plan. So the sequence can be preempted in the next plan.
//  - A sequence may end at any time. Steps in flight then hold its blocks (step_holds.h).
//
// The parts of a chunked prompt are sequences too (part_source.h, scheduler_parts.cc). They are
// admitted together with the main sequence, when that is the head of the queue. No other sequence
// passes it. Their prefills share the budget like others, in the order in which they see each
// other. Unreferenced cached chunks are evicted for a sequence that nothing else can make room for,
// and for a hand-off that would be refused.
//
// Cost of a step: O(max_running * log) plus a constant number of waiting sequences, for any queue
// length. After vLLM V1's scheduler.
//
// Pure: no clock, no threads. Used by the engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "cache/sequence_frame.h"
#include "common/strong_int.h"
#include "scheduler/part_source.h"
#include "scheduler/step_holds.h"

namespace baton {

struct SchedulerOptions {
  int32_t token_budget = 512;      // tokens that a step may compute, including decode tokens
  int32_t max_chunk_tokens = 512;  // of one sequence in a step; a large number means whole prompts
  // Prompt tokens in a step for which answers wait (SchedulerOutput::decodes). 0: as many as the
  // budget allows.
  int32_t mixed_prompt_tokens = 0;
  int32_t max_running = 64;    // sequences with blocks; limited to token_budget
  int32_t max_waiting = 1024;  // queue bound for sequences that never ran
  bool insert_chunks = true;   // insert committed blocks into the prefix tree after every chunk
};

// The most parts of chunked prompts in one step. They come on top of max_running sequences.
inline constexpr int32_t kMaxPartsInStep = 32;

// Returns the largest number of tokens of one sequence in uncommitted steps.
inline int32_t MaxStepTokens(const SchedulerOptions& options, int32_t steps_in_flight) {
  return std::min(options.max_chunk_tokens, options.token_budget) * steps_in_flight;
}

enum class SequencePhase : uint8_t {
  kWaiting,       // in the queue, without blocks
  kWaitingForKv,  // blocks reserved; KV arrives from a peer (or a tier)
  kRunning,       // has blocks and is scheduled
};

struct SequenceSpec {
  SequenceId id;
  std::vector<TokenId> tokens;  // the prompt
  CacheNamespace cache_namespace;
  CacheOwner cache_owner = {};  // of the namespace
  int32_t max_tokens = 0;       // largest length, prompt included
  int32_t priority = 0;         // higher first
  int32_t forks = 0;            // sequences that will be forked from it
  int32_t fork_blocks = 0;  // blocks that all forks together need at once, besides one each to grow
  // The main sequence of a chunked prompt: the most blocks that its parts take together. 0: a
  // sequence without parts.
  int32_t part_blocks = 0;
  // Only for Add, and not with parts: when the sequence leaves the queue, it waits for KV from a
  // peer, as after AddWaitingForKv. If the pool is too small to import it, it runs instead.
  bool awaits_kv = false;
};

struct ScheduledChunk {
  SequenceId id;
  int32_t begin = 0;  // first slot computed in this step
  int32_t count = 0;  // tokens
  // The chunk ends at the last known token, and the logits of its last row are sampled.
  bool samples = false;
  bool pending = false;  // the chunk is one token, which a step in flight samples
  bool framed = false;   // the sequence has a frame (Scheduler::frame)
  // Set by the caller before StepSubmitted: the step itself samples the token after the chunk, and
  // the sequence continues with it. REQUIRES: samples.
  bool draws_next = false;
};

struct SchedulerOutput {
  std::vector<ScheduledChunk> chunks;  // decode rows (count 1) first
  // Left the queue in this step. The cache's matched() is the number of their cached tokens.
  std::vector<SequenceId> admitted;
  // Left the queue in this step, to kWaitingForKv (SequenceSpec::awaits_kv).
  std::vector<SequenceId> awaiting_kv;
  std::vector<SequenceId> preempted;  // back in the queue
  std::vector<SequenceId> exhausted;  // cannot grow, and nothing is left to evict or preempt
  int32_t total_tokens = 0;
  bool decodes = false;  // a sequence that has generated tokens runs, and waits for this step
  // Sequences wait for blocks or places, and this worker computes no prompt, although the step has
  // budget for one.
  bool prompts_blocked = false;
};

class Scheduler {
 public:
  // REQUIRES: options valid; cache outlives the scheduler.
  Scheduler(const SchedulerOptions& options, KvCacheManager* cache);
  // Finishes all remaining sequences.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Must be set before a sequence with parts is added. `parts` outlives every sequence.
  void set_part_source(PartSource* parts) { part_source_ = parts; }

  // Queues a sequence. ResourceExhausted, with both numbers: the queue is full, or the prompt does
  // not fit the pool's present size. InvalidArgument: the prompt can never fit the pool (both
  // numbers), is empty, or is longer than max_tokens.
  absl::Status Add(SequenceSpec spec);

  // Returns the sequence that must leave a full queue so that Add can take `spec`. It is the last
  // queued sequence that has a lower priority and never ran. nullopt if the queue has room, no such
  // sequence exists, or Add would refuse `spec` anyway.
  std::optional<SequenceId> ToDisplace(const SequenceSpec& spec) const;

  // The decode side of a hand-off: admits a sequence at once, outside the queue, in phase
  // kWaitingForKv, with blocks reserved for the whole prompt. ResourceExhausted, with nothing
  // taken, if there is no room, or a sequence of higher priority or another hand-off waits. Blocks
  // that the head of the queue waits for do not count as room. After success, matched() and
  // BlockTable() of the cache tell which blocks are missing. The missing parts of a main sequence
  // are admitted with it; they wait for KV too, until PartArrived.
  absl::Status AddWaitingForKv(SequenceSpec spec);
  // The KV of slots [0, committed) has arrived and was verified. The sequence runs from there and
  // recomputes all tokens after it. After a failed transfer, `committed` is the part that arrived,
  // or matched(). If the whole prompt is committed, the first token came with it: call AppendToken
  // before Schedule. REQUIRES: all parts of a main sequence are committed.
  void KvArrived(SequenceId id, int32_t committed);
  // Same for a part. Its remaining tokens are computed here. Afterwards it is done, or runs, like
  // every part.
  void PartArrived(SequenceId part, int32_t committed);

  // Every part of this main sequence is committed. It takes its frame from the source and runs.
  // REQUIRES: it is in kWaitingForKv and has parts; the source's FrameIfReady is not null.
  void PartsReady(SequenceId main);
  // The rows of a repair are known. They replace earlier rows of it, if it had any, and are planned
  // from the next step on. REQUIRES: `repair` has no rows that are not committed; `tokens` is not
  // empty and frame->rows are their places.
  void BeginRows(SequenceId repair, std::vector<TokenId> tokens,
                 std::shared_ptr<const SequenceFrame> frame);
  // The frame of a part or of a running main sequence; else null. Valid until the sequence ends,
  // changes its phase, or the caller drops its copy.
  std::shared_ptr<const SequenceFrame> frame(SequenceId id) const { return Get(id).frame; }
  // Parts that have blocks and are not done.
  int32_t parts_count() const { return static_cast<int32_t>(parts_.size()); }

  // Call it after the pool's size has changed. Returns the queued sequences that can never be
  // admitted any more, in order; the caller must Finish them. (Running sequences that are too large
  // for the pool become `exhausted` when they must grow.)
  std::vector<SequenceId> PoolResized();
  // Blocks that the sequence needs at least to be admitted: for all known tokens, or in contiguous
  // mode for the largest length; and for its parts.
  int32_t BlocksToBegin(SequenceId id) const;

  // Plans a step. Without chunks in the output, nothing can run until an event, a transfer or a
  // step in flight ends the wait. If the step is neither submitted nor committed, its chunks are
  // planned again.
  SchedulerOutput Schedule();
  // The step is now in flight. The next plan starts after its chunks.
  void StepSubmitted(const SchedulerOutput& output);
  // The oldest step in flight, planned as `output`, has ended. Then call CommitStep. If the step
  // failed, finish its sequences first.
  void StepCollected(const SchedulerOutput& output);
  // The step's KV is written: commits every chunk, and inserts it if insert_chunks is set. Skips
  // sequences that were removed meanwhile.
  void CommitStep(const SchedulerOutput& output);
  // Appends a sampled token (known, not committed). It replaces a pending one. A token past
  // max_tokens makes the sequence `exhausted`.
  void AppendToken(SequenceId id, TokenId token);
  // Appends tokens that were sampled elsewhere, and reserves blocks for them. Without enough blocks
  // the sequence waits at the head of its priority. REQUIRES: the sequence does not wait for KV and
  // has nothing in flight.
  void AppendTokens(SequenceId id, std::span<const TokenId> tokens);
  // Starts `child` with the same tokens, and shares the blocks of `parent`. If it cannot share (no
  // free place among the running sequences, contiguous mode), the child waits at the head of its
  // priority and recomputes the tokens. REQUIRES: the parent runs, all its tokens are committed,
  // child is new.
  void Fork(SequenceId parent, SequenceId child);
  // Ends a sequence in any phase; the only exit. See KvCacheManager::Release. Steps in flight that
  // compute some of it hold its blocks until they are collected, also those of its frame. The
  // destructor of the frame's `holds` may Finish parts.
  void Finish(SequenceId id, bool keep_cached);

  bool Contains(SequenceId id) const;
  SequencePhase phase(SequenceId id) const;
  int32_t priority(SequenceId id) const;
  std::span<const TokenId> tokens(SequenceId id) const;  // valid until the sequence changes
  int32_t waiting_count() const;
  int32_t running_count() const;
  int32_t waiting_for_kv_count() const;
  int64_t preemption_count() const;
  // Known tokens that are not committed, of all sequences but those whose KV comes from a peer.
  // O(sequences).
  int64_t UncomputedTokens() const;
  // Expected tokens to compute of all prompts: what running prefills lack, and what queued
  // sequences lack beyond the prefix that was cached when they joined the queue. A running sequence
  // that lacks one token does not count: that is a row of a decode. O(sequences).
  int64_t PromptTokensLeft() const;
  // Returns true if Schedule could produce a chunk or report an exhausted sequence. After a
  // Schedule that produced nothing it is false until something changes.
  bool has_work() const;
  StepHolds& step_holds() { return step_holds_; }
  const StepHolds& step_holds() const { return step_holds_; }

 private:
  // Position among waiting or running sequences. The first is served first and preempted last.
  struct Order {
    int32_t priority = 0;
    bool resumes = false;  // was preempted; goes before newer sequences of its priority
    uint64_t arrival = 0;
    int32_t fork = 0;  // forks have their parent's arrival number
    bool operator<(const Order& other) const;
  };
  struct Sequence {
    SequenceSpec spec;  // its tokens grow
    SequencePhase phase = SequencePhase::kWaiting;
    Order order;
    int32_t forked = 0;
    int32_t tokens_at_add = 0;  // its first tokens: those that were not generated here
    int32_t cached_at_add = 0;  // tokens of its prompt that were cached when it joined the queue
    int32_t in_flight = 0;      // tokens in chunks in flight, after the committed ones
    int32_t pending = 0;        // tokens that steps in flight sample
    int64_t last_step = 0;      // the latest step that computes some of it
    std::shared_ptr<const SequenceFrame> frame;
    bool is_part = false;
    bool inserts = false;           // a part that shares its prefix
    bool repairs = false;           // a part that computes rows of its frame again
    int32_t committed_rows = 0;     // of a repair
    std::vector<SequenceId> after;  // parts that a part sees
    int32_t known() const { return static_cast<int32_t>(spec.tokens.size()) + pending; }
  };
  struct Prefill {
    Sequence* sequence;
    int32_t remaining;  // tokens to compute
  };
  // Places and blocks reserved for a sequence ahead in the queue.
  struct Claim {
    int32_t places = 0;
    BlockCounts blocks;
  };
  enum class Room : uint8_t {
    kReady,
    kNone,  // the sequence waits
    kPreemptedItself,
    kAfterCollect,  // waits until a victim has nothing in flight and can be preempted
  };

  Sequence& Get(SequenceId id);
  const Sequence& Get(SequenceId id) const;
  absl::Status CheckCanEverFit(const SequenceSpec& spec) const;
  absl::Status CheckRoomForHandOff(const SequenceSpec& spec) const;
  absl::Status CheckPlaceForHandOff(const SequenceSpec& spec, const Claim& head) const;
  Claim ClaimOfHead(const SequenceSpec& newcomer) const;
  BlockCounts BlocksToAdmit(const SequenceSpec& spec) const;
  Sequence& Remember(SequenceSpec spec, SequencePhase phase, Order order);
  // Returns true if there is a place and blocks for the queue's head, `spec`, and for its forks.
  bool HeadHasRoom(const SequenceSpec& spec) const;
  // Returns true if its forks have room too, besides `admitted` others, in the `available` blocks.
  bool RoomForForks(const SequenceSpec& spec, int32_t admitted, const BlockCounts& available) const;
  BlockCounts BlocksOfForks(const SequenceSpec& spec) const;
  absl::Status TakeBlocks(const Sequence& sequence, bool imports);
  bool CannotGrow(const Sequence& sequence) const;
  BlockCounts BlocksToHold(const Sequence& sequence, int32_t tokens) const;
  int32_t TokensToBegin(const Sequence& sequence) const;
  bool CanNeverBegin(const Sequence& sequence) const;

  int32_t Committed(const Sequence& sequence) const {
    return sequence.repairs ? sequence.committed_rows : cache_->committed(sequence.spec.id);
  }
  // The most tokens of the sequence that the next plan may compute.
  int32_t Remaining(const Sequence& sequence) const {
    return sequence.known() - sequence.in_flight - Committed(sequence);
  }
  bool InFlight(const Sequence& sequence) const { return step_holds_.InFlight(sequence.last_step); }
  void InsertCommitted(const Sequence& sequence);

  // Returns false if the rest of the plan must wait for steps in flight.
  bool AnswersWait() const;  // SchedulerOutput::decodes
  // Prompt tokens that the step may compute beside what `output` has.
  int32_t PromptBudget(const SchedulerOutput& output) const;
  bool ScheduleDecodes(SchedulerOutput& output);
  Room RoomForPending(const Sequence& sequence);
  Room MakeRoom(Sequence& sequence, SchedulerOutput& output);
  void Preempt(Sequence& sequence, SchedulerOutput& output);
  void Requeue(Sequence& sequence);
  void AdmitHandOffs(SchedulerOutput& output);
  void SchedulePrefills(SchedulerOutput& output);
  std::vector<Prefill> PrefillsInProgress() const;
  void AddAdmissible(std::vector<Prefill>& prefills, SchedulerOutput& output) const;
  std::vector<int32_t> ShareOut(std::span<const Prefill> prefills, int32_t budget) const;
  bool PromptsBlocked(const SchedulerOutput& output) const;
  bool AdmitThoseWithAShare(std::span<const Prefill> prefills, std::span<const int32_t> share,
                            SchedulerOutput& output);
  bool Admit(Sequence& sequence, SchedulerOutput& output);
  void AddChunk(const Sequence& sequence, int32_t count, SchedulerOutput& output) const;

  // scheduler_parts.cc
  void AdmitChunkedPrompts(int32_t& budget, SchedulerOutput& output);
  bool AdmitWithParts(Sequence& main, SchedulerOutput& output);
  absl::Status BeginParts(std::vector<PartSpec> parts, const Sequence& main, bool imports);
  absl::Status BeginHandOff(const Sequence& sequence);
  absl::Status TakeBlocksOfPart(const PartSpec& part, const SequenceSpec& main);
  void RaisePriority(SequenceId part, int32_t priority);
  void TakeFrame(Sequence& main);
  int64_t PrefillTokensAhead(int32_t priority) const;
  BlockCounts LeftAfterAdmitting(const SequenceSpec& spec) const;
  bool NothingFreesBlocks() const;
  void EvictChunksForHead();
  void EvictChunksForHandOff(const SequenceSpec& spec);
  void AddParts(std::vector<Prefill>& prefills) const;
  void DivideAmongParts(std::span<const Prefill> prefills, std::vector<int32_t>& share) const;
  bool MayRun(const Sequence& part, const absl::flat_hash_set<SequenceId>& planned) const;
  void CommittedPart(Sequence& part);

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
  int32_t queued_hand_offs_ = 0;    // waiting sequences with awaits_kv
  int32_t promised_forks_ = 0;      // of admitted sequences
  int32_t prompt_budget_left_ = 0;  // of the latest plan
  int64_t preemptions_ = 0;
  uint64_t arrivals_ = 0;
  // State of the pool when a Schedule produced nothing. Any event resets it.
  struct PoolState {
    BlockCounts available;
    int32_t in_transfer = 0;
    bool operator==(const PoolState&) const = default;
  };
  PoolState Pool() const { return {cache_->AvailableBlocks(), cache_->blocks_in_transfer()}; }
  std::optional<PoolState> blocked_at_;
  StepHolds step_holds_;
  PartSource* part_source_ = nullptr;
  std::map<Order, Sequence*> parts_;  // those that are not done
  int32_t parts_begun_ = 0;
};

}  // namespace baton
