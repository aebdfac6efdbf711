// Parts of chunked prompts on this worker: finds them in the chunk cache, lets the scheduler
// compute those that are missing, and gives frames to the sequences that see them.
//
// The main sequence of a request is its question and answer (SequenceId: the request's handle). Its
// parts get sequences with ids of their own (IsPart). A part is in one of these states:
//  - being computed: its sequence runs. Any number of requests wait for it.
//  - being received from a peer (part_receives.h): its sequence waits for KV. It becomes stored,
//    or being computed if the transfer fails.
//  - being woken (chunk_tier.h): the same, from host memory of this worker.
//  - stored: its blocks belong to an entry of the chunk cache, and its sequence has ended.
//  - bypassed: the chunk cache had no room. The part's sequence keeps the blocks while a request
//    uses them.
//  - a system part: its sequence keeps the blocks while a request uses them. Its full blocks are
//    also in the prefix tree, and its part-full last block is stored in the chunk cache.
//
// A request with a chunk repair (chunk_repair.h) has one more part, which begins when all others
// are done (prompt_parts_repair.cc). It belongs to the request alone: its blocks are never found by
// another request, never stored, and freed with the frame of the request.
//
// Invariants:
//  1. A part is used by main sequences that wait for it, by their frames, and by parts that see it
//     and are not done. With its last user, its sequence ends and its reference is dropped.
//  2. Two parts with the same key are never computed or received at the same time.
//  3. A main sequence that waits in the queue uses nothing.
//  4. The blocks of a part are written by that part alone. A repair writes copies.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/chunk_cache.h"
#include "cache/chunk_layout.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "common/prompt_chunk_support.h"
#include "common/prompt_chunks.h"
#include "engine/chunk_tier.h"
#include "engine/derived_namespaces.h"
#include "engine/joint_transfers.h"
#include "engine/request.h"
#include "scheduler/part_source.h"
#include "scheduler/scheduler.h"

namespace baton {

struct PromptPartsOptions {
  ChunkCacheOptions cache;
  int32_t piece_tokens = 4096;  // a multiple of 256
  // Limits of a step of the model runner.
  int64_t max_slots = int64_t{1} << 30;            // of one sequence with its frame
  int32_t max_shifted_queries = kMaxPromptChunks;  // at least one for each shift of a request
  int32_t max_repair_runs = kMaxPromptChunks + 1;  // visible runs of the repairs in a step
  bool repairs_share = true;                       // the model runner compares rows
};

class PromptParts final : public PartSource {
 public:
  // All pointers must outlive this. Becomes the scheduler's source of parts.
  // `tier` may be null: then no chunk sleeps.
  PromptParts(const PromptPartsOptions& options, KvCacheManager* cache, Scheduler* scheduler,
              const Clock* clock, ChunkTier* tier = nullptr);
  ~PromptParts() override;
  PromptParts(const PromptParts&) = delete;
  PromptParts& operator=(const PromptParts&) = delete;

  static bool IsPart(SequenceId id) { return id.value() >= kFirstPartId; }

  // FailedPrecondition, by name: what this worker or its model cannot do with chunks.
  absl::Status CheckSupported(const ChunkOptions& options) const;
  // FailedPrecondition: the prompt cannot be prefilled on another worker than the one that answers.
  static absl::Status CheckHandOff(const ChunkOptions& options);
  // What CheckSupported answers, as the worker announces it.
  PromptChunkSupport Support() const;
  // Makes the layout of a prompt. `own_tokens`: the largest length of question and answer.
  // InvalidArgument, with value and limit: a step cannot see so many slots or shifts. REQUIRES:
  // CheckChunkedPrompt and CheckSupported are OK.
  absl::StatusOr<std::shared_ptr<const ChunkLayout>> Plan(const ChunkedPrompt& prompt,
                                                          CacheNamespace cache_namespace,
                                                          int32_t own_tokens) const {
    return Plan(prompt, cache_namespace, own_tokens, options_.piece_tokens);
  }
  // Same, with long chunks divided every `piece_tokens` tokens. InvalidArgument: piece_tokens is
  // not a positive multiple of 256.
  absl::StatusOr<std::shared_ptr<const ChunkLayout>> Plan(const ChunkedPrompt& prompt,
                                                          CacheNamespace cache_namespace,
                                                          int32_t own_tokens,
                                                          int32_t piece_tokens) const;
  int32_t piece_tokens() const { return options_.piece_tokens; }

  // Where the KV of a main sequence is computed and used.
  enum class Use : uint8_t {
    kLocal,
    kReceived,  // from a peer: the caller joins the question's KV and its parts
    kSent,      // to a peer, which may lack parts
  };
  // Adds a main sequence. Call it before Scheduler::Add, AddWaitingForKv and Fork. REQUIRES: new.
  void Add(SequenceId main, std::shared_ptr<const ChunkLayout> layout, int64_t plan_us = 0,
           Use use = Use::kLocal);
  // The main sequence has ended. Call it after Scheduler::Finish. Ignores other sequences.
  void End(SequenceId main);

  bool IsRepair(SequenceId part) const { return repairs_.contains(part); }
  // What the parts of a main sequence cost so far. `cached_tokens`, `computed_tokens` and `slices`
  // are those since the last call. REQUIRES: added, not ended.
  struct Costs {
    ChunkLedger ledger;
    int32_t cached_tokens = 0;
    int32_t computed_tokens = 0;
    int32_t slices = 0;
    JointTransfers received;  // of parts that came for this main sequence; all so far
  };
  Costs TakeCosts(SequenceId main);

  // A chunk of a part is committed. Ignores parts that have ended. `changes`: if the chunk compares
  // (SequenceFrame::compares), one for each token.
  void OnComputed(const ScheduledChunk& chunk, std::span<const float> changes);
  // Returns the main sequences whose repair writes from now on, since the last call. The caller
  // calls this after OnComputed and OnArrived. It must then make the copies that the cache asks for
  // (KvCacheManager::TakeCopies) before anything else uses blocks; if that fails, these requests
  // fail.
  std::vector<SequenceId> TakeBegunRepairs() { return std::exchange(begun_repairs_, {}); }
  // Returns the main sequences that wait for a part, rising. Their requests fail with the part.
  std::vector<SequenceId> WaitersOf(SequenceId part) const;

  // A part that the admission of a main sequence created.
  struct CreatedPart {
    int32_t part = 0;     // number in the layout
    SequenceId sequence;  // in the scheduler, where it waits for KV
    int32_t tokens = 0;
  };
  // The parts that Scheduler::AddWaitingForKv created for this main sequence.
  std::vector<CreatedPart> CreatedFor(SequenceId main) const;
  // The transfer of a part has ended; its first `committed` tokens are here. Counts the transfer
  // for the request that created the part, if `transfer` is not null. Ignores parts that have
  // ended.
  void OnArrived(SequenceId part, int32_t committed, const TransferEvent* transfer);
  // True if all parts of an admitted main sequence are done.
  bool Ready(SequenceId main) const;
  // Blocks of a part of an admitted main sequence; empty while the part is not done. Valid until
  // the main sequence ends.
  std::span<const BlockId> BlocksIfDone(SequenceId main, int32_t part) const;
  // Returns the main sequences with something new since the last call, rising: all parts of a
  // received one are done, or a part of a sent one. They may have ended.
  std::vector<SequenceId> TakeProgress();

  // Lets chunks that nothing has used for long fall asleep. Call it often.
  void SleepCold() { chunks_.SleepCold(); }
  // Handles the end of a wake.
  void OnWoken(const ChunkTier::Woken& woken);

  // Forgets cached chunks (ChunkCache::Clear), also those that sleep.
  int32_t Clear(std::optional<CacheNamespace> only);
  // The namespaces of questions and answers whose chunks are in `base`, among them all with cached
  // prefixes (derived_namespaces.h).
  std::vector<CacheNamespace> DerivedFrom(CacheNamespace base) const { return derived_.Of(base); }
  // Call it after the pool's size has changed.
  void PoolResized() { chunks_.PoolResized(); }
  // Chunks that were woken, or taken back while they fell asleep, count as hits.
  ChunkCacheStats Stats() const;
  SleepingChunkStats SleepingStats() const;
  // The sleeping ones first.
  std::vector<ChunkCache::EntryInfo> Entries() const;
  ChunkCache& chunk_cache() { return chunks_; }
  // True if the part of a chunk sleeps, or falls asleep.
  bool Sleeps(const ChunkLayout::Part& part) const;
  // True if the part of a chunk is cached or sleeps, or a request computes or receives it.
  bool HasOrAwaits(const ChunkLayout::Part& part) const;
  bool idle() const { return mains_.empty() && by_id_.empty() && repairs_.empty(); }
  absl::Status CheckInvariants() const { return chunks_.CheckInvariants(); }

  int32_t BlocksForParts(SequenceId main) const override;
  Admission Admit(SequenceId main) override;
  void Abandon(SequenceId main) override;
  std::shared_ptr<const SequenceFrame> FrameOfPart(SequenceId part) override;
  std::shared_ptr<const SequenceFrame> FrameIfReady(SequenceId main) override;
  int32_t evictable_blocks() const override { return chunks_.evictable_blocks(); }
  bool EvictOne(SequenceId wanted_by) override;

 private:
  static constexpr uint64_t kFirstPartId = uint64_t{1} << 63;

  class LivePart;
  using PartPointer = std::shared_ptr<LivePart>;
  class Repair;
  // What a frame of a main sequence keeps. The repair reads blocks of the parts, so it ends first.
  struct Held {
    std::vector<PartPointer> parts;
    std::shared_ptr<Repair> repair;  // null: none
  };

  struct Main {
    std::shared_ptr<const ChunkLayout> layout;
    int32_t repair_blocks = 0;  // 0: the request repairs nothing
    // Parallel to layout->parts, from the admission until the frame is made, which then has them.
    std::vector<PartPointer> parts;
    std::shared_ptr<Repair> repair;  // the same; null: none
    int32_t waits_for = 0;           // parts that are not done, except the repair
    std::weak_ptr<const SequenceFrame> frame;
    std::weak_ptr<const Held> framed;  // what `frame` has
    Use use = Use::kLocal;
    std::vector<bool> hits;  // by part, since the admission: its KV was cached
    int64_t admitted_us = 0;
    bool counted = false;  // TakeCosts has returned the cached tokens
    Costs costs;
  };

  // Returns the part if it is cached or live, else null.
  PartPointer Find(const ChunkLayout& layout, const ChunkLayout::Part& part);
  PartPointer FindChunk(const ChunkLayout::Part& part);
  ChunkCache::Reference FindStored(const ChunkLayout::Part& part);
  PartPointer FindSystem(const ChunkLayout& layout, const ChunkLayout::Part& part);
  PartPointer FindLive(const ChunkLayout::Part& part) const;
  PartPointer FoundPart(const ChunkLayout::Part& part);
  PartPointer Create(const ChunkLayout::Part& part, SequenceId main,
                     const std::vector<PartPointer>& parts);
  int32_t BlocksFor(const ChunkLayout& layout, const ChunkLayout::Part& part) const;
  // False: system parts are cached as chunks are, with all their blocks.
  bool SharesPrefixes() const { return RulesOf(cache_->options().kind).shares; }
  // Number of leading full blocks of a system part that the prefix tree keeps.
  int32_t BlocksInTree(const ChunkLayout::Part& part) const;
  // True if the chunk cache keeps the rest of a system part.
  bool HasTail(const ChunkLayout::Part& part) const;
  static void CountHits(Main& main);
  static void CountWoken(const LivePart& part, Main& main);
  // Frame of the main sequence without a repair, and without holds. REQUIRES: its parts are done.
  SequenceFrame UnrepairedFrame(const Main& main) const;
  void Store(LivePart& part);
  void Done(LivePart& part);
  void Drop(LivePart& part);

  // prompt_parts_repair.cc
  PartSpec AddRepair(SequenceId id, Main& main);
  std::optional<SequenceId> MainOfRepair(SequenceId repair) const;
  static bool IsRepaired(const Main& main);  // or needs no repair
  // Makes the frame of the repair's rows. Unless they compare, asks for copies. REQUIRES: the parts
  // are done.
  std::shared_ptr<const SequenceFrame> FrameOfRepair(Repair& repair);
  // Null: no repair has this id, or it waits for parts.
  std::shared_ptr<const SequenceFrame> FrameOfRepairIfReady(SequenceId id);
  void BeginRepair(const Main& main);
  void OnCompared(Repair& repair, const ScheduledChunk& chunk, std::span<const float> changes);
  void OnRepaired(Repair& repair, const ScheduledChunk& chunk);
  void OnRowsComputed(Repair& repair, const ScheduledChunk& chunk, std::span<const float> changes);
  SequenceFrame TakeRepairedFrame(const Main& main);
  void DropRepair(const Repair& repair);

  bool UsesNamespace(CacheNamespace derived) const;
  SequenceId NewId() { return SequenceId(kFirstPartId + next_id_++); }

  const PromptPartsOptions options_;
  KvCacheManager* const cache_;
  Scheduler* const scheduler_;
  const Clock* const clock_;
  DerivedNamespaces derived_;
  ChunkTier* const tier_;  // null: no chunk sleeps
  ChunkCache chunks_;
  int64_t awakened_ = 0;  // lookups that found a chunk in the tier
  absl::flat_hash_map<SequenceId, Main> mains_;
  absl::flat_hash_map<SequenceId, LivePart*> by_id_;             // parts with a sequence
  absl::flat_hash_map<ChunkKey, std::weak_ptr<LivePart>> live_;  // parts with a sequence
  absl::flat_hash_map<SequenceId, Repair*> repairs_;
  std::vector<SequenceId> begun_repairs_;  // for TakeBegunRepairs
  std::vector<SequenceId> progress_;       // for TakeProgress
  uint64_t next_id_ = 1;                   // no part has id kFirstPartId itself
};

}  // namespace baton
