// What Scheduler knows of its sequences' needs: whether one has room now, whether it can ever have
// room, and how many prompt tokens are left to compute.
#include <algorithm>
#include <optional>

#include "common/counted_noun.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "scheduler/scheduler.h"

namespace baton {

absl::Status Scheduler::CheckCanEverFit(const SequenceSpec& spec) const {
  if (spec.tokens.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  const int64_t prompt = static_cast<int64_t>(spec.tokens.size());
  if (prompt > spec.max_tokens) {
    return absl::InvalidArgumentError(
        StrCat("the prompt has ", prompt, " tokens, more than max_tokens ", spec.max_tokens));
  }
  const KvCacheOptions& pool = cache_->options();
  const int32_t tokens = pool.paged ? static_cast<int32_t>(prompt) : spec.max_tokens;
  const BlockCounts blocks = cache_->BlocksToHold(tokens) + BlockCounts(spec.part_blocks);
  const int32_t group = (cache_->PoolBlocks() - blocks).FirstBelowZero();
  if (group < 0) return absl::OkStatus();
  const std::string why = StrCat(
      CountedNoun(tokens, "token"),
      spec.part_blocks > 0
          ? StrCat(" and ", CountedNoun(spec.part_blocks, "block"), " of prompt chunks")
          : std::string(),
      " need ", CountedNoun(blocks[group], "block"), " of ", CountedNoun(pool.block_size, "token"),
      "; the pool has ", CountedNoun(cache_->num_blocks(group), "block"),
      group > 0 ? StrCat(" in KV group ", group) : std::string());
  if (blocks[group] > cache_->max_blocks(group)) return absl::InvalidArgumentError(why);
  // The pool has shrunk and may grow again. Another worker may have room.
  return absl::ResourceExhaustedError(StrCat(why, " now, at most ", cache_->max_blocks(group)));
}

std::optional<SequenceId> Scheduler::ToDisplace(const SequenceSpec& spec) const {
  if (new_waiting_count() < options_.max_waiting || !CheckCanEverFit(spec).ok()) {
    return std::nullopt;
  }
  for (auto it = waiting_.rbegin(); it != waiting_.rend(); ++it) {
    if (it->first.priority >= spec.priority) break;
    if (!it->first.resumes) return it->second->spec.id;
  }
  return std::nullopt;
}

// Blocks that the queue's head waits for are not available, unless the newcomer has a higher
// priority.
Scheduler::Claim Scheduler::ClaimOfHead(const SequenceSpec& newcomer) const {
  if (waiting_.empty() || waiting_.begin()->first.priority < newcomer.priority) return {};
  const Sequence& head = *waiting_.begin()->second;
  if (CanNeverBegin(head)) return {};
  return {.places = 1, .blocks = cache_->OfEveryGroup(1) + BlocksToAdmit(head.spec)};
}

// Includes the parts of a chunked prompt.
BlockCounts Scheduler::BlocksToAdmit(const SequenceSpec& spec) const {
  BlockCounts blocks = cache_->BlocksToAdmit(spec.cache_namespace, UnitsFromTokens(spec.tokens),
                                             spec.max_tokens, spec.id);
  if (spec.part_blocks > 0) blocks += BlockCounts(part_source_->BlocksForParts(spec.id));
  return blocks;
}

absl::Status Scheduler::CheckPlaceForHandOff(const SequenceSpec& spec, const Claim& head) const {
  if (preempted_waiting_ > 0) {
    return absl::ResourceExhaustedError(StrCat(
        preempted_waiting_, " preempted sequences wait for blocks; hand-offs wait for them"));
  }
  if (!waiting_.empty() && waiting_.begin()->first.priority > spec.priority) {
    return absl::ResourceExhaustedError(StrCat("a sequence of priority ",
                                               waiting_.begin()->first.priority,
                                               " waits; this one has priority ", spec.priority));
  }
  if (queued_hand_offs_ > 0 && waiting_.begin()->first.priority >= spec.priority) {
    return absl::ResourceExhaustedError(
        StrCat(queued_hand_offs_, " hand-offs wait in the queue; this one would pass them"));
  }
  if (admitted_count() + head.places >= max_running_) {
    return absl::ResourceExhaustedError(StrCat(admitted_count(), " sequences are admitted and ",
                                               head.places, " waits; the limit is ", max_running_));
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CheckRoomForHandOff(const SequenceSpec& spec) const {
  const Claim head = ClaimOfHead(spec);
  RETURN_IF_ERROR(CheckPlaceForHandOff(spec, head));
  const BlockCounts needed =
      BlocksToAdmit(spec) + cache_->OfEveryGroup(admitted_count()) + head.blocks;
  const BlockCounts left = cache_->AvailableBlocks() - needed;
  if (const int32_t group = left.FirstBelowZero(); group >= 0) {
    return absl::ResourceExhaustedError(StrCat(
        needed[group], " blocks needed, ", head.blocks[group], " of them for the queue's head; ",
        cache_->AvailableBlocks()[group], " of ", cache_->num_blocks(group), " are available",
        group > 0 ? StrCat(" in KV group ", group) : std::string()));
  }
  if (!RoomForForks(spec, admitted_count(), left)) {
    return absl::ResourceExhaustedError(
        StrCat(spec.forks, " forks need as many places, ", max_running_ - admitted_count() - 1,
               " of ", max_running_, " are left; and ", BlocksOfForks(spec).full(), " blocks, ",
               left.full(), " are left"));
  }
  return absl::OkStatus();
}

bool Scheduler::HeadHasRoom(const SequenceSpec& spec) const {
  if (admitted_count() >= max_running_) return false;
  const BlockCounts left = LeftAfterAdmitting(spec);
  return left.FirstBelowZero() < 0 && RoomForForks(spec, admitted_count(), left);
}

bool Scheduler::RoomForForks(const SequenceSpec& spec, int32_t admitted,
                             const BlockCounts& available) const {
  if (spec.forks == 0 || admitted == 0) return true;
  return admitted + 1 + spec.forks <= max_running_ &&
         (available - BlocksOfForks(spec)).FirstBelowZero() < 0;
}

// Forks share the prompt's full-attention blocks. Window blocks are counted for each fork.
BlockCounts Scheduler::BlocksOfForks(const SequenceSpec& spec) const {
  BlockCounts blocks = cache_->BlocksToHold(static_cast<int32_t>(spec.tokens.size())) * spec.forks;
  blocks[0] = spec.fork_blocks;
  return blocks + cache_->OfEveryGroup(spec.forks);
}

// Returns true if the sequence has more tokens than it may have, or than the whole pool can hold.
// In contiguous mode only the first applies, because the whole run is reserved at the start.
bool Scheduler::CannotGrow(const Sequence& sequence) const {
  return sequence.known() > sequence.spec.max_tokens ||
         (cache_->options().paged &&
          (cache_->PoolBlocks() - BlocksToHold(sequence, sequence.known())).FirstBelowZero() >= 0);
}

int32_t Scheduler::BlocksToBegin(SequenceId id) const {
  const Sequence& sequence = Get(id);
  return cache_->BlocksFor(TokensToBegin(sequence)) + sequence.spec.part_blocks;
}

// With its parts.
BlockCounts Scheduler::BlocksToHold(const Sequence& sequence, int32_t tokens) const {
  BlockCounts blocks = cache_->BlocksToHold(tokens);
  blocks[0] += sequence.spec.part_blocks;
  return blocks;
}

int32_t Scheduler::TokensToBegin(const Sequence& sequence) const {
  return cache_->options().paged ? sequence.known() : sequence.spec.max_tokens;
}

bool Scheduler::CanNeverBegin(const Sequence& sequence) const {
  return sequence.known() > sequence.spec.max_tokens ||
         (cache_->PoolBlocks() - BlocksToHold(sequence, TokensToBegin(sequence)))
                 .FirstBelowZero() >= 0;
}

bool Scheduler::PromptsBlocked(const SchedulerOutput& output) const {
  if (waiting_.empty() || prompt_budget_left_ <= 0) return false;
  // A preemption in this plan, or the end of a step in flight, may make room for the next plan.
  if (!output.preempted.empty() || !step_holds_.empty()) return false;
  for (const auto& [order, sequence] : running_) {
    const auto collected = static_cast<int32_t>(sequence->spec.tokens.size());
    if (collected - Committed(*sequence) > 1) return false;
  }
  return std::none_of(parts_.begin(), parts_.end(), [&](const auto& entry) {
    const Sequence& part = *entry.second;
    return InFlight(part) ||
           std::any_of(output.chunks.begin(), output.chunks.end(),
                       [&](const ScheduledChunk& chunk) { return chunk.id == part.spec.id; });
  });
}

std::vector<SequenceId> Scheduler::PoolResized() {
  blocked_at_.reset();
  std::vector<SequenceId> out;
  for (const auto& [order, sequence] : waiting_) {
    if (CanNeverBegin(*sequence)) out.push_back(sequence->spec.id);
  }
  return out;
}

// Preempted sequences count whole, although the cache may still have much of them. A peer computes
// the prompts of waiting hand-offs.
int64_t Scheduler::PromptTokensLeft() const {
  int64_t tokens = 0;
  for (const auto& [order, sequence] : waiting_) {
    if (!sequence->spec.awaits_kv) tokens += sequence->known() - sequence->cached_at_add;
  }
  for (const auto* computing : {&running_, &parts_}) {
    for (const auto& [order, sequence] : *computing) {
      const int32_t left = sequence->known() - Committed(*sequence);
      if (left > 1) tokens += left;
    }
  }
  return tokens;
}

}  // namespace baton
