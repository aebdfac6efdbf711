#include "scheduler/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "scheduler/prefill_share.h"

namespace baton {
namespace {

// How many sequences at the front of the queue one step examines.
constexpr int32_t kAdmissionWindow = 8;

}  // namespace

bool Scheduler::Order::operator<(const Order& other) const {
  return std::tuple(other.priority, !resumes, arrival, fork) <
         std::tuple(priority, !other.resumes, other.arrival, other.fork);
}

Scheduler::Scheduler(const SchedulerOptions& options, KvCacheManager* cache)
    : options_(options),
      max_running_(std::min(options.max_running, options.token_budget)),
      cache_(cache),
      step_holds_(cache) {
  CHECK_GE(options.token_budget, 1);
  CHECK_GE(options.max_chunk_tokens, 1);
  CHECK_GE(options.mixed_prompt_tokens, 0);
  CHECK_GE(options.max_running, 1);
  CHECK_GE(options.max_waiting, 0);
  CHECK(cache->groups() == 1 || cache->options().max_step_tokens >=
                                    std::min(options.max_chunk_tokens, options.token_budget))
      << "windows reserve only " << cache->options().max_step_tokens
      << " tokens for a step; a chunk may be longer";
}

Scheduler::~Scheduler() {
  while (!sequences_.empty()) Finish(sequences_.begin()->first, /*keep_cached=*/false);
}

Scheduler::Sequence& Scheduler::Get(SequenceId id) {
  const auto it = sequences_.find(id);
  CHECK(it != sequences_.end()) << "no sequence " << id;
  return *it->second;
}

const Scheduler::Sequence& Scheduler::Get(SequenceId id) const {
  const auto it = sequences_.find(id);
  CHECK(it != sequences_.end()) << "no sequence " << id;
  return *it->second;
}

// ---- adding and ending sequences ----------------------------------------------------------------

Scheduler::Sequence& Scheduler::Remember(SequenceSpec spec, SequencePhase phase, Order order) {
  auto sequence = std::make_unique<Sequence>();
  sequence->order = order;
  sequence->phase = phase;
  sequence->spec = std::move(spec);
  sequence->tokens_at_add = static_cast<int32_t>(sequence->spec.tokens.size());
  Sequence& remembered = *sequence;
  const SequenceId id = remembered.spec.id;
  CHECK(sequences_.emplace(id, std::move(sequence)).second)
      << "sequence " << id << " already exists";
  blocked_at_.reset();
  return remembered;
}

absl::Status Scheduler::Add(SequenceSpec spec) {
  RETURN_IF_ERROR(CheckCanEverFit(spec));
  if (new_waiting_count() >= options_.max_waiting) {
    return absl::ResourceExhaustedError(StrCat("the queue is full with ", new_waiting_count(),
                                               " sequences, the limit is ", options_.max_waiting));
  }
  const Order order{.priority = spec.priority, .arrival = arrivals_++};
  Sequence& sequence = Remember(std::move(spec), SequencePhase::kWaiting, order);
  sequence.cached_at_add = cache_->PeekMatch(
      sequence.spec.cache_namespace, UnitsFromTokens(sequence.spec.tokens), sequence.spec.id);
  waiting_.emplace(sequence.order, &sequence);
  if (sequence.spec.awaits_kv) ++queued_hand_offs_;
  return absl::OkStatus();
}

void Scheduler::AppendToken(SequenceId id, TokenId token) {
  Sequence& sequence = Get(id);
  sequence.spec.tokens.push_back(token);
  if (sequence.pending > 0) --sequence.pending;
  blocked_at_.reset();
}

void Scheduler::AppendTokens(SequenceId id, std::span<const TokenId> tokens) {
  Sequence& sequence = Get(id);
  CHECK(!InFlight(sequence)) << "sequence " << id << " has chunks in flight";
  sequence.spec.tokens.insert(sequence.spec.tokens.end(), tokens.begin(), tokens.end());
  blocked_at_.reset();
  if (sequence.phase == SequencePhase::kRunning && !cache_->Reserve(id, sequence.known()).ok()) {
    Requeue(sequence);
  }
}

void Scheduler::Fork(SequenceId parent, SequenceId child) {
  Sequence& from = Get(parent);
  CHECK(from.phase == SequencePhase::kRunning) << "sequence " << parent << " is not running";
  CHECK_EQ(from.known(), cache_->committed(parent)) << "sequence " << parent;
  if (from.spec.forks > 0) {
    --from.spec.forks;
    --promised_forks_;
  }
  SequenceSpec spec = from.spec;
  spec.id = child;
  spec.forks = spec.fork_blocks = 0;
  Order order = from.order;
  order.fork = ++from.forked;
  const bool place = running_count() + waiting_for_kv_ < max_running_;
  const bool shares = place && cache_->Fork(parent, child).ok();
  order.resumes = !shares;
  Sequence& fork =
      Remember(std::move(spec), shares ? SequencePhase::kRunning : SequencePhase::kWaiting, order);
  if (shares) fork.frame = from.frame;
  (shares ? running_ : waiting_).emplace(order, &fork);
  if (!shares) ++preempted_waiting_;
}

void Scheduler::Finish(SequenceId id, bool keep_cached) {
  Sequence& sequence = Get(id);
  // Dropped at the end of this function, because its holds may finish parts.
  const std::shared_ptr<const SequenceFrame> frame = std::move(sequence.frame);
  switch (sequence.phase) {
    case SequencePhase::kWaiting:
      waiting_.erase(sequence.order);
      if (sequence.order.resumes) --preempted_waiting_;
      if (sequence.spec.awaits_kv) --queued_hand_offs_;
      break;
    case SequencePhase::kWaitingForKv:
      if (!sequence.is_part) --waiting_for_kv_;
      break;
    case SequencePhase::kRunning:
      (sequence.is_part ? parts_ : running_).erase(sequence.order);
      break;
  }
  if (sequence.phase != SequencePhase::kWaiting) {
    promised_forks_ -= sequence.spec.forks;
    for (int32_t group = 0; InFlight(sequence) && group < cache_->groups(); ++group) {
      step_holds_.Hold(sequence.last_step, cache_->BlockTable(id, group), group);
    }
    if (frame != nullptr && InFlight(sequence)) {
      step_holds_.Hold(sequence.last_step, frame->blocks);
    }
    // A part has inserted what it may. The chunk cache may have the rest.
    cache_->Release(id, keep_cached && !sequence.is_part);
  }
  sequences_.erase(id);
  blocked_at_.reset();
}

bool Scheduler::Contains(SequenceId id) const { return sequences_.contains(id); }

SequencePhase Scheduler::phase(SequenceId id) const { return Get(id).phase; }

int32_t Scheduler::priority(SequenceId id) const { return Get(id).spec.priority; }

std::span<const TokenId> Scheduler::tokens(SequenceId id) const { return Get(id).spec.tokens; }

int32_t Scheduler::waiting_count() const { return static_cast<int32_t>(waiting_.size()); }

int32_t Scheduler::running_count() const { return static_cast<int32_t>(running_.size()); }

int32_t Scheduler::waiting_for_kv_count() const { return waiting_for_kv_; }

int64_t Scheduler::preemption_count() const { return preemptions_; }

int64_t Scheduler::UncomputedTokens() const {
  int64_t tokens = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase == SequencePhase::kWaitingForKv || sequence->spec.awaits_kv) continue;
    const bool has_blocks = sequence->phase == SequencePhase::kRunning;
    tokens += sequence->known() - (has_blocks ? Committed(*sequence) : 0);
  }
  return tokens;
}

bool Scheduler::has_work() const {
  if (blocked_at_ == Pool()) return false;
  if (!waiting_.empty()) return true;
  const auto computes = [&](const auto& entry) { return Remaining(*entry.second) > 0; };
  return std::any_of(running_.begin(), running_.end(), computes) ||
         std::any_of(parts_.begin(), parts_.end(), computes);
}

// ---- scheduling a step --------------------------------------------------------------------------

SchedulerOutput Scheduler::Schedule() {
  SchedulerOutput output;
  const bool goes_on = ScheduleDecodes(output);
  output.decodes = AnswersWait();
  prompt_budget_left_ = PromptBudget(output);
  if (goes_on) {
    AdmitHandOffs(output);
    SchedulePrefills(output);
  }
  blocked_at_.reset();
  // What was admitted may have chunks in the next plan.
  if (output.chunks.empty() && output.exhausted.empty() && output.preempted.empty() &&
      output.admitted.empty() && output.awaiting_kv.empty()) {
    blocked_at_ = Pool();
  }
  output.prompts_blocked = PromptsBlocked(output);
  return output;
}

bool Scheduler::ScheduleDecodes(SchedulerOutput& output) {
  // MakeRoom preempts from the end of running_. So it never moves a sequence that this loop has
  // passed. If it preempts the loop's own sequence, that is the last one.
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    Sequence& sequence = *it->second;
    if (Remaining(sequence) != 1) continue;
    const Room room = sequence.pending > 0 ? RoomForPending(sequence) : MakeRoom(sequence, output);
    if (room == Room::kPreemptedItself) return true;
    if (room == Room::kAfterCollect) return false;
    if (room == Room::kReady) AddChunk(sequence, 1, output);
  }
  return true;
}

// A row in flight counts, too, because the steps behind it delay the sequence's next token.
bool Scheduler::AnswersWait() const {
  return std::any_of(running_.begin(), running_.end(), [this](const auto& entry) {
    const Sequence& sequence = *entry.second;
    return sequence.known() > sequence.tokens_at_add && Remaining(sequence) <= 1;
  });
}

int32_t Scheduler::PromptBudget(const SchedulerOutput& output) const {
  const int32_t left = options_.token_budget - output.total_tokens;
  if (!output.decodes || options_.mixed_prompt_tokens == 0) return left;
  return std::min(left, options_.mixed_prompt_tokens);
}

Scheduler::Room Scheduler::RoomForPending(const Sequence& sequence) {
  // The pending token may be the last one. Then no row follows it.
  const bool ends = sequence.known() >= sequence.spec.max_tokens || CannotGrow(sequence);
  if (ends || !cache_->Reserve(sequence.spec.id, sequence.known()).ok()) return Room::kNone;
  return Room::kReady;
}

Scheduler::Room Scheduler::MakeRoom(Sequence& sequence, SchedulerOutput& output) {
  const SequenceId id = sequence.spec.id;
  if (CannotGrow(sequence)) {
    if (!InFlight(sequence)) output.exhausted.push_back(id);
    return Room::kNone;
  }
  while (!cache_->Reserve(id, sequence.known()).ok()) {
    // Steps in flight hold blocks that are freed when the steps are collected.
    if (!step_holds_.empty()) return Room::kAfterCollect;
    Sequence& victim = *running_.rbegin()->second;
    if (InFlight(victim)) return Room::kAfterCollect;
    if (&victim != &sequence) {
      Preempt(victim, output);
      continue;
    }
    if (running_.size() > 1) {
      Preempt(sequence, output);
      return Room::kPreemptedItself;
    }
    if (waiting_for_kv_ > 0 || cache_->blocks_in_transfer() > 0) return Room::kNone;
    if (part_source_ != nullptr && part_source_->EvictOne(id)) continue;
    output.exhausted.push_back(id);
    return Room::kNone;
  }
  return Room::kReady;
}

void Scheduler::Preempt(Sequence& sequence, SchedulerOutput& output) {
  Requeue(sequence);
  ++preemptions_;
  output.preempted.push_back(sequence.spec.id);
}

void Scheduler::Requeue(Sequence& sequence) {
  running_.erase(sequence.order);
  promised_forks_ -= sequence.spec.forks;
  cache_->Preempt(sequence.spec.id);
  sequence.phase = SequencePhase::kWaiting;
  sequence.order.resumes = true;
  waiting_.emplace(sequence.order, &sequence);
  ++preempted_waiting_;
  sequence.frame.reset();
}

void Scheduler::SchedulePrefills(SchedulerOutput& output) {
  int32_t budget = prompt_budget_left_;
  if (budget <= 0) return;
  const int32_t before = output.total_tokens;
  if (part_source_ != nullptr) AdmitChunkedPrompts(budget, output);
  std::vector<Prefill> prefills = PrefillsInProgress();
  if (!parts_.empty()) AddParts(prefills);
  // If sequences were preempted in this step, the freed blocks belong to the running sequences.
  // This also keeps a preempted sequence from coming back in the same step.
  if (output.preempted.empty()) AddAdmissible(prefills, output);
  std::stable_sort(prefills.begin(), prefills.end(), [](const Prefill& a, const Prefill& b) {
    return a.sequence->spec.priority > b.sequence->spec.priority;
  });
  std::vector<int32_t> share = ShareOut(prefills, budget);
  if (!AdmitThoseWithAShare(prefills, share, output)) {
    // No sequence may pass one that has no room. The share of the waiting sequences goes to the
    // running ones, which may then finish and make room.
    std::erase_if(prefills, [](const Prefill& prefill) {
      return prefill.sequence->phase == SequencePhase::kWaiting;
    });
    share = ShareOut(prefills, budget);
  }
  if (!parts_.empty()) DivideAmongParts(prefills, share);
  for (size_t i = 0; i < prefills.size(); ++i) {
    Sequence& sequence = *prefills[i].sequence;
    const bool runs = sequence.phase == SequencePhase::kRunning;
    if (!runs || share[i] == 0) continue;
    if (cache_->groups() > 1 && !cache_->Reserve(sequence.spec.id, sequence.known()).ok()) {
      // Without a chunk in this plan, it soon has none in flight, and can then be preempted.
      if (!InFlight(sequence)) Preempt(sequence, output);
      continue;
    }
    AddChunk(sequence, share[i], output);
  }
  prompt_budget_left_ -= output.total_tokens - before;
}

std::vector<int32_t> Scheduler::ShareOut(std::span<const Prefill> prefills, int32_t budget) const {
  std::vector<PrefillDemand> line;
  for (const Prefill& prefill : prefills) {
    line.push_back({.priority = prefill.sequence->spec.priority, .remaining = prefill.remaining});
  }
  return SharePrefillBudget(line, budget, options_.max_chunk_tokens);
}

// Returns false if one of them has no room. That one and those behind it keep waiting.
bool Scheduler::AdmitThoseWithAShare(std::span<const Prefill> prefills,
                                     std::span<const int32_t> share, SchedulerOutput& output) {
  for (size_t i = 0; i < prefills.size(); ++i) {
    Sequence& sequence = *prefills[i].sequence;
    if (share[i] == 0 || sequence.phase != SequencePhase::kWaiting) continue;
    if (!Admit(sequence, output)) return false;
  }
  return true;
}

std::vector<Scheduler::Prefill> Scheduler::PrefillsInProgress() const {
  std::vector<Prefill> prefills;
  for (const auto& [order, sequence] : running_) {
    const int32_t remaining = Remaining(*sequence);
    if (remaining > 1) prefills.push_back({.sequence = sequence, .remaining = remaining});
  }
  return prefills;
}

// Appends the first sequences of the queue that fit together. Each is checked against the blocks
// left after all before it.
void Scheduler::AddAdmissible(std::vector<Prefill>& prefills, SchedulerOutput& output) const {
  int32_t admitted = admitted_count();
  BlockCounts available = cache_->AvailableBlocks() - cache_->OfEveryGroup(admitted);
  int32_t looked_at = 0;
  for (const auto& [order, sequence] : waiting_) {
    if (admitted >= max_running_ || looked_at++ == kAdmissionWindow) return;
    if (CanNeverBegin(*sequence)) {
      output.exhausted.push_back(sequence->spec.id);
      continue;
    }
    // AdmitChunkedPrompts and AdmitHandOffs admit it at the head.
    if (sequence->spec.part_blocks > 0 || sequence->spec.awaits_kv) return;
    const std::vector<CacheUnit> units = UnitsFromTokens(sequence->spec.tokens);
    const CacheNamespace cache_namespace = sequence->spec.cache_namespace;
    const SequenceId id = sequence->spec.id;
    available -= cache_->BlocksToAdmit(cache_namespace, units, sequence->spec.max_tokens, id);
    if (available.FirstBelowZero() >= 0 || !RoomForForks(sequence->spec, admitted, available))
      return;
    const int32_t matched = cache_->PeekMatch(cache_namespace, units, id);
    prefills.push_back({.sequence = sequence, .remaining = sequence->known() - matched});
    admitted += 1 + sequence->spec.forks;
    available -= cache_->OfEveryGroup(1) + BlocksOfForks(sequence->spec);
  }
}

// Begins the sequence and reserves all its known tokens, to compute or to import them. Takes
// nothing on failure.
absl::Status Scheduler::TakeBlocks(const Sequence& sequence, bool imports) {
  const SequenceSpec& spec = sequence.spec;
  absl::StatusOr<int32_t> matched =
      cache_->Begin(spec.id, spec.cache_namespace, UnitsFromTokens(spec.tokens), spec.max_tokens,
                    spec.priority, spec.cache_owner);
  RETURN_IF_ERROR(matched.status());
  absl::Status status = imports ? cache_->ReserveForImport(spec.id, sequence.known())
                                : cache_->Reserve(spec.id, sequence.known());
  if (!status.ok()) cache_->Release(spec.id, /*keep=*/false);
  return status;
}

// Returns false if the blocks cannot be taken, for example if contiguous mode has no free run.
bool Scheduler::Admit(Sequence& sequence, SchedulerOutput& output) {
  if (!TakeBlocks(sequence, /*imports=*/false).ok()) return false;
  waiting_.erase(sequence.order);
  if (std::exchange(sequence.order.resumes, false)) --preempted_waiting_;
  sequence.phase = SequencePhase::kRunning;
  promised_forks_ += sequence.spec.forks;
  running_.emplace(sequence.order, &sequence);
  output.admitted.push_back(sequence.spec.id);
  return true;
}

void Scheduler::AddChunk(const Sequence& sequence, int32_t count, SchedulerOutput& output) const {
  const SequenceId id = sequence.spec.id;
  const int32_t remaining = Remaining(sequence);
  const int32_t begin = sequence.known() - remaining;
  count = std::min(count, remaining);
  if (cache_->groups() > 1) {
    // Windows have blocks for only this many uncommitted tokens.
    count = std::min(count, cache_->options().max_step_tokens - sequence.in_flight);
    if (count <= 0) return;
  }
  output.chunks.push_back({.id = id,
                           .begin = begin,
                           .count = count,
                           .samples = count == remaining && !sequence.is_part,
                           .pending = sequence.pending > 0,
                           .framed = sequence.frame != nullptr});
  output.total_tokens += count;
}

}  // namespace baton
