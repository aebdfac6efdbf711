// Chunked prompts in Scheduler: admission of a main sequence with its parts, prefills of parts, and
// eviction of cached chunks for other sequences.
#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "scheduler/scheduler.h"

namespace baton {

// ---- admission ----------------------------------------------------------------------------------

// Blocks that would be left after the sequence was admitted with its parts; may be negative. One
// block for each admitted sequence is not available.
BlockCounts Scheduler::LeftAfterAdmitting(const SequenceSpec& spec) const {
  return cache_->AvailableBlocks() - cache_->OfEveryGroup(admitted_count()) - BlocksToAdmit(spec);
}

// Prompt tokens that admitted sequences of at least this priority still compute.
int64_t Scheduler::PrefillTokensAhead(int32_t priority) const {
  int64_t tokens = 0;
  for (const auto* const sequences : {&running_, &parts_}) {
    for (const auto& [order, sequence] : *sequences) {
      const bool prefills = sequence->is_part || Remaining(*sequence) > 1;
      if (prefills && order.priority >= priority) tokens += Remaining(*sequence);
    }
  }
  return tokens;
}

// Admits chunked prompts from the head of the queue, as long as this step has budget for them. A
// main sequence that is ready and lacks one token gets its row here, like a decode.
void Scheduler::AdmitChunkedPrompts(int32_t& budget, SchedulerOutput& output) {
  // Blocks freed by a preemption in this step belong to the running sequences.
  if (!output.preempted.empty() || waiting_.empty()) return;
  EvictChunksForHead();
  while (!waiting_.empty()) {
    Sequence& head = *waiting_.begin()->second;
    if (head.spec.part_blocks == 0 || CanNeverBegin(head)) return;
    if (PrefillTokensAhead(head.spec.priority) >= budget || !HeadHasRoom(head.spec)) return;
    if (!AdmitWithParts(head, output)) {
      // Where nothing else can free blocks, the head would wait forever.
      if (NothingFreesBlocks() && part_source_->EvictOne(head.spec.id)) continue;
      return;
    }
    if (head.phase == SequencePhase::kRunning && Remaining(head) == 1) {
      AddChunk(head, 1, output);
      --budget;
    }
  }
}

// Returns false, with nothing taken, if contiguous mode has no run for one of the sequences.
bool Scheduler::AdmitWithParts(Sequence& main, SchedulerOutput& output) {
  const SequenceId id = main.spec.id;
  PartSource::Admission admission = part_source_->Admit(id);
  // The main sequence is first, so that its cached prefix is locked before parts evict others.
  if (!TakeBlocks(main, /*imports=*/false).ok()) {
    part_source_->Abandon(id);
    return false;
  }
  if (!BeginParts(std::move(admission.missing), main, /*imports=*/false).ok()) {
    cache_->Release(id, /*keep=*/false);
    part_source_->Abandon(id);
    return false;
  }
  for (const SequenceId part : admission.waits_for) RaisePriority(part, main.spec.priority);
  waiting_.erase(main.order);
  if (std::exchange(main.order.resumes, false)) --preempted_waiting_;
  promised_forks_ += main.spec.forks;
  output.admitted.push_back(id);
  main.frame = part_source_->FrameIfReady(id);
  if (main.frame == nullptr) {
    main.phase = SequencePhase::kWaitingForKv;
    ++waiting_for_kv_;
  } else {
    main.phase = SequencePhase::kRunning;
    running_.emplace(main.order, &main);
  }
  return true;
}

// Takes the blocks of a sequence whose KV comes from a peer, with those of its missing parts. Takes
// nothing on failure.
absl::Status Scheduler::BeginHandOff(const Sequence& sequence) {
  if (sequence.spec.part_blocks == 0) return TakeBlocks(sequence, /*imports=*/true);
  const SequenceId id = sequence.spec.id;
  PartSource::Admission admission = part_source_->Admit(id);
  absl::Status begun = TakeBlocks(sequence, /*imports=*/true);
  if (begun.ok()) {
    begun = BeginParts(std::move(admission.missing), sequence, /*imports=*/true);
    if (!begun.ok()) cache_->Release(id, /*keep=*/false);
  }
  if (!begun.ok()) {
    part_source_->Abandon(id);
    return begun;
  }
  for (const SequenceId part : admission.waits_for) RaisePriority(part, sequence.spec.priority);
  return absl::OkStatus();
}

// Takes the blocks of all parts, or of none.
absl::Status Scheduler::BeginParts(std::vector<PartSpec> parts, const Sequence& main,
                                   bool imports) {
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::Status taken = TakeBlocksOfPart(parts[i], main.spec);
    if (taken.ok()) continue;
    for (size_t begun = 0; begun < i; ++begun) cache_->Release(parts[begun].id, /*keep=*/false);
    return taken;
  }
  for (PartSpec& part : parts) {
    const bool arrives = imports || part.arrives;
    const auto phase = arrives ? SequencePhase::kWaitingForKv : SequencePhase::kRunning;
    const auto tokens = static_cast<int32_t>(part.tokens.size());
    Order order = main.order;
    order.resumes = false;
    order.fork = parts_begun_ = parts_begun_ % std::numeric_limits<int32_t>::max() + 1;
    Sequence& sequence = Remember({.id = part.id,
                                   .tokens = std::move(part.tokens),
                                   .cache_namespace = part.cache_namespace,
                                   .max_tokens = tokens,
                                   .priority = main.spec.priority},
                                  phase, order);
    sequence.is_part = true;
    sequence.inserts = part.shares_prefix;
    sequence.repairs = part.repair_blocks > 0;
    sequence.after = std::move(part.after);
    sequence.frame = part_source_->FrameOfPart(part.id);
    CHECK(!imports || !sequence.repairs) << "sequence " << main.spec.id << " imports and repairs";
    if (!arrives && sequence.known() > 0) parts_.emplace(order, &sequence);
  }
  return absl::OkStatus();
}

void Scheduler::PartArrived(SequenceId id, int32_t committed) {
  Sequence& part = Get(id);
  CHECK(part.is_part && part.phase == SequencePhase::kWaitingForKv)
      << "sequence " << id << " is no part that waits for KV";
  CHECK_LE(committed, part.known());
  const int32_t before = cache_->committed(id);
  if (committed > before) {
    cache_->Commit(
        id, UnitsFromTokens(std::span(part.spec.tokens).subspan(before, committed - before)));
  }
  part.phase = SequencePhase::kRunning;
  parts_.emplace(part.order, &part);
  CommittedPart(part);
}

absl::Status Scheduler::TakeBlocksOfPart(const PartSpec& part, const SequenceSpec& main) {
  const bool repairs = part.repair_blocks > 0;
  CHECK(repairs || !part.tokens.empty()) << "part " << part.id << " has no tokens";
  const int32_t tokens = repairs ? part.repair_blocks * cache_->options().block_size
                                 : static_cast<int32_t>(part.tokens.size());
  if (part.shares_prefix) {
    const std::vector<CacheUnit> units = UnitsFromTokens(part.tokens);
    RETURN_IF_ERROR(
        cache_->Begin(part.id, part.cache_namespace, units, tokens, main.priority, main.cache_owner)
            .status());
  } else {
    RETURN_IF_ERROR(cache_->BeginPart(part.id, tokens));
  }
  absl::Status reserved = cache_->Reserve(part.id, tokens);
  if (!reserved.ok()) cache_->Release(part.id, /*keep=*/false);
  return reserved;
}

// A part that a more important request waits for is as important.
void Scheduler::RaisePriority(SequenceId part, int32_t priority) {
  const auto it = sequences_.find(part);
  if (it == sequences_.end() || it->second->spec.priority >= priority) return;
  Sequence& sequence = *it->second;
  const bool computes = parts_.erase(sequence.order) > 0;
  sequence.spec.priority = sequence.order.priority = priority;
  if (computes) parts_.emplace(sequence.order, &sequence);
}

void Scheduler::TakeFrame(Sequence& main) {
  main.frame = part_source_->FrameIfReady(main.spec.id);
  CHECK(main.frame != nullptr) << "sequence " << main.spec.id << " lacks parts";
}

void Scheduler::PartsReady(SequenceId main) {
  Sequence& sequence = Get(main);
  CHECK(sequence.phase == SequencePhase::kWaitingForKv && sequence.spec.part_blocks > 0)
      << "sequence " << main << " does not wait for parts";
  TakeFrame(sequence);
  --waiting_for_kv_;
  sequence.phase = SequencePhase::kRunning;
  running_.emplace(sequence.order, &sequence);
  blocked_at_.reset();
}

void Scheduler::BeginRows(SequenceId repair, std::vector<TokenId> tokens,
                          std::shared_ptr<const SequenceFrame> frame) {
  Sequence& sequence = Get(repair);
  CHECK(sequence.repairs && Committed(sequence) == sequence.known() && !InFlight(sequence))
      << "repair " << repair << " has rows that are not committed";
  CHECK(!tokens.empty() && frame != nullptr && frame->rows.size() == tokens.size())
      << "repair " << repair << " begins without rows";
  sequence.spec.tokens = std::move(tokens);
  sequence.committed_rows = 0;
  sequence.frame = std::move(frame);
  parts_.emplace(sequence.order, &sequence);
  blocked_at_.reset();
}

// ---- evicting cached chunks ---------------------------------------------------------------------

bool Scheduler::NothingFreesBlocks() const {
  return admitted_count() == 0 && parts_.empty() && step_holds_.empty() &&
         cache_->blocks_in_transfer() == 0;
}

// Without this, a sequence that needs the blocks of cached chunks would wait forever.
void Scheduler::EvictChunksForHead() {
  if (!NothingFreesBlocks() || part_source_->evictable_blocks() == 0) return;
  const Sequence& head = *waiting_.begin()->second;
  if (CanNeverBegin(head)) return;
  while (LeftAfterAdmitting(head.spec).FirstBelowZero() >= 0) {
    if (!part_source_->EvictOne(head.spec.id)) return;
  }
}

// Evicts only if that makes enough room.
void Scheduler::EvictChunksForHandOff(const SequenceSpec& spec) {
  if (part_source_->evictable_blocks() == 0) return;
  if (!CheckPlaceForHandOff(spec, ClaimOfHead(spec)).ok()) return;
  const auto left = [&] {
    BlockCounts blocks = LeftAfterAdmitting(spec) - ClaimOfHead(spec).blocks;
    if (admitted_count() > 0 && spec.forks > 0) blocks -= BlocksOfForks(spec);
    return blocks;
  };
  if (left().full() + part_source_->evictable_blocks() < 0) return;
  while (left().full() < 0 && part_source_->EvictOne(spec.id)) {
  }
}

// ---- prefills of parts --------------------------------------------------------------------------

// `planned` are the parts that this plan computes to their end.
bool Scheduler::MayRun(const Sequence& part, const absl::flat_hash_set<SequenceId>& planned) const {
  return std::all_of(part.after.begin(), part.after.end(), [&](SequenceId before) {
    const auto it = sequences_.find(before);
    return it == sequences_.end() || Remaining(*it->second) == 0 || planned.contains(before);
  });
}

// Adds the parts that may run in this step, if those that they see end in it or before. `prefills`
// are in the order of service.
void Scheduler::AddParts(std::vector<Prefill>& prefills) const {
  absl::flat_hash_set<SequenceId> may_end;
  const auto first = static_cast<std::ptrdiff_t>(prefills.size());
  for (const auto& [order, sequence] : parts_) {
    if (static_cast<std::ptrdiff_t>(prefills.size()) == first + kMaxPartsInStep) break;
    const int32_t remaining = Remaining(*sequence);
    if (remaining == 0 || !MayRun(*sequence, may_end)) continue;
    if (remaining <= options_.max_chunk_tokens) may_end.insert(sequence->spec.id);
    prefills.push_back({.sequence = sequence, .remaining = remaining});
  }
  std::inplace_merge(
      prefills.begin(), prefills.begin() + first, prefills.end(),
      [](const Prefill& a, const Prefill& b) { return a.sequence->order < b.sequence->order; });
}

// The shares of all parts of an admission go to its first parts, so that the parts that they see
// are computed first. Parts of one admission have the same arrival.
void Scheduler::DivideAmongParts(std::span<const Prefill> prefills,
                                 std::vector<int32_t>& share) const {
  absl::flat_hash_map<uint64_t, int32_t> left;  // by arrival
  for (size_t i = 0; i < prefills.size(); ++i) {
    if (prefills[i].sequence->is_part) left[prefills[i].sequence->order.arrival] += share[i];
  }
  absl::flat_hash_set<SequenceId> planned;
  for (size_t i = 0; i < prefills.size(); ++i) {
    const Sequence& part = *prefills[i].sequence;
    if (!part.is_part) continue;
    const int32_t most = std::min(prefills[i].remaining, options_.max_chunk_tokens);
    int32_t& budget = left[part.order.arrival];
    share[i] = MayRun(part, planned) ? std::min(most, budget) : 0;
    budget -= share[i];
    if (share[i] == prefills[i].remaining) planned.insert(part.spec.id);
  }
}

void Scheduler::CommittedPart(Sequence& part) {
  const SequenceId id = part.spec.id;
  const int32_t committed = Committed(part);
  const bool done = committed == part.known();
  if (part.inserts && (done || options_.insert_chunks)) {
    cache_->InsertIfNew(id);
  }
  if (done) parts_.erase(part.order);
  blocked_at_.reset();
}

}  // namespace baton
