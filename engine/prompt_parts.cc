#include "engine/prompt_parts.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/chunk_repair.h"
#include "engine/live_part.h"

namespace baton {
namespace {

ChunkCacheOptions WithClock(ChunkCacheOptions options, const Clock* clock) {
  options.clock = clock;
  return options;
}

}  // namespace

PromptParts::PromptParts(const PromptPartsOptions& options, KvCacheManager* cache,
                         Scheduler* scheduler, const Clock* clock, ChunkTier* tier)
    : options_(options),
      cache_(cache),
      scheduler_(scheduler),
      clock_(clock),
      derived_([this](CacheNamespace derived) { return UsesNamespace(derived); }),
      tier_(tier),
      chunks_(WithClock(options.cache, clock), cache) {
  scheduler_->set_part_source(this);
  if (tier_ == nullptr || !tier_->on()) return;
  chunks_.set_demotion(
      [this](const ChunkCache::Leaving& leaving) { return tier_->FallAsleep(leaving); });
}

PromptParts::~PromptParts() { CHECK(idle()) << "parts outlive their requests"; }

// ---- requests -----------------------------------------------------------------------------------

absl::Status PromptParts::CheckSupported(const ChunkOptions& options) const {
  if (cache_->groups() > 1) {
    return absl::FailedPreconditionError(
        StrCat("prompt chunks need full attention in every layer; this model has sliding windows"));
  }
  const ChunkRepair& repair = options.repair;
  if (repair.RepairsNothing()) return absl::OkStatus();
  if (repair.kind == ChunkRepair::Kind::kFirst || options_.repairs_share) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("chunk_repair ", ChunkRepairName(repair),
             " needs a model of two or more layers; use first:K or none"));
}

PromptChunkSupport PromptParts::Support() const {
  return {.piece_tokens = options_.piece_tokens,
          .refusal = std::string(CheckSupported({}).message()),
          .repairs_first = true,
          .repairs_share = options_.repairs_share};
}

absl::StatusOr<std::shared_ptr<const ChunkLayout>> PromptParts::Plan(const ChunkedPrompt& prompt,
                                                                     CacheNamespace cache_namespace,
                                                                     int32_t own_tokens,
                                                                     int32_t piece_tokens) const {
  RETURN_IF_ERROR(CheckPieceTokens(piece_tokens));
  auto layout =
      std::make_shared<const ChunkLayout>(MakeChunkLayout(prompt, cache_namespace, piece_tokens));
  const int64_t slots = layout->SlotsOfFrame(cache_->options().block_size) + own_tokens;
  if (slots > options_.max_slots) {
    return absl::InvalidArgumentError(
        StrCat("the prompt's parts and its answer take ", slots,
               " tokens, because each part takes whole blocks of ", cache_->options().block_size,
               "; a sequence on this worker has at most ", options_.max_slots));
  }
  if (layout->shifts() > options_.max_shifted_queries) {
    return absl::InvalidArgumentError(StrCat("the chunks have ", layout->shifts(),
                                             " different position shifts; at most ",
                                             options_.max_shifted_queries, " are allowed"));
  }
  return layout;
}

void PromptParts::Add(SequenceId main, std::shared_ptr<const ChunkLayout> layout, int64_t plan_us,
                      Use use) {
  Main added;
  added.use = use;
  added.costs.ledger.chunks = static_cast<int32_t>(layout->chunks.size());
  added.costs.ledger.lookup_us = plan_us;
  added.repair_blocks = BlocksOfRepair(*layout, cache_->options().block_size);
  derived_.Add(layout->derived_namespace, layout->cache_namespace);
  added.layout = std::move(layout);
  CHECK(mains_.emplace(main, std::move(added)).second) << "sequence " << main << " is added twice";
}

void PromptParts::End(SequenceId main) {
  const auto found = mains_.find(main);
  if (found == mains_.end()) return;
  const Held held{.parts = std::move(found->second.parts),
                  .repair = std::move(found->second.repair)};
  mains_.erase(found);
  for (const PartPointer& part : held.parts) std::erase(part->waiters, main);
}

PromptParts::Costs PromptParts::TakeCosts(SequenceId main) {
  Main& at = mains_.at(main);
  Costs costs = at.costs;
  if (std::exchange(at.counted, true)) costs.cached_tokens = 0;
  at.costs.computed_tokens = at.costs.slices = 0;
  return costs;
}

std::vector<SequenceId> PromptParts::WaitersOf(SequenceId part) const {
  if (const std::optional<SequenceId> main = MainOfRepair(part)) return {*main};
  const auto found = by_id_.find(part);
  if (found == by_id_.end()) return {};
  // A part that sees this one fails with it. Every request that waits for such a part also waits
  // for this one, so these waiters are all.
  std::vector<SequenceId> waiters = found->second->waiters;
  std::sort(waiters.begin(), waiters.end());
  return waiters;
}

// ---- admission ----------------------------------------------------------------------------------

int32_t PromptParts::BlocksInTree(const ChunkLayout::Part& part) const {
  if (!SharesPrefixes()) return 0;
  return static_cast<int32_t>(part.tokens.size()) / cache_->options().block_size;
}

bool PromptParts::HasTail(const ChunkLayout::Part& part) const {
  const int64_t in_tree = int64_t{BlocksInTree(part)} * cache_->options().block_size;
  return in_tree < static_cast<int64_t>(part.tokens.size());
}

int32_t PromptParts::BlocksForParts(SequenceId main) const {
  const ChunkLayout& layout = *mains_.at(main).layout;
  int32_t blocks = mains_.at(main).repair_blocks;
  for (const ChunkLayout::Part& part : layout.parts) blocks += BlocksFor(layout, part);
  return blocks;
}

int32_t PromptParts::BlocksFor(const ChunkLayout& layout, const ChunkLayout::Part& part) const {
  if (FindLive(part) != nullptr) return 0;
  const auto tokens = static_cast<int32_t>(part.tokens.size());
  if (part.kind != ChunkKind::kSystem) {
    return chunks_.Peek(part.key, part.tokens).has_value() ? 0 : cache_->BlocksFor(tokens);
  }
  const std::vector<CacheUnit> units = UnitsFromTokens(part.tokens);
  const std::optional<ChunkCache::Peeked> tail = chunks_.Peek(part.key, part.tokens);
  if (!HasTail(part) || tail.has_value()) {
    const int32_t in_tree = HasTail(part) ? tail->first_block : BlocksInTree(part);
    const RadixPeek peek = cache_->PeekBlocks(
        layout.cache_namespace,
        std::span(units).first(static_cast<size_t>(in_tree) * cache_->options().block_size));
    if (peek.blocks == in_tree) return peek.evictable_blocks;
  }
  return cache_->BlocksToAdmit(layout.cache_namespace, units, tokens, SequenceId(kFirstPartId))
      .full();
}

PartSource::Admission PromptParts::Admit(SequenceId main) {
  Main& admitted = mains_.at(main);
  const ChunkLayout& layout = *admitted.layout;
  const int64_t begin_us = clock_->NowUs();
  admitted.costs.ledger.hits = admitted.costs.ledger.repaired_tokens = 0;
  admitted.costs.cached_tokens = 0;
  admitted.waits_for = 0;
  // Forks of the main sequence may still use its frame of an earlier admission.
  admitted.frame.reset();
  admitted.framed.reset();
  admitted.parts.clear();
  Admission admission;
  admitted.hits.assign(layout.parts.size(), false);
  std::vector<PartPointer> parts;
  for (const ChunkLayout::Part& part : layout.parts) {
    PartPointer live = Find(layout, part);
    admitted.hits[parts.size()] = live != nullptr && live->done;
    if (live == nullptr) {
      live = Create(part, main, parts);
      PartSpec& spec = admission.missing.emplace_back();
      spec.id = *live->sequence;
      spec.tokens = part.tokens;
      spec.shares_prefix = part.kind == ChunkKind::kSystem && SharesPrefixes();
      spec.cache_namespace = layout.cache_namespace;
      spec.arrives = live->wakes;
      for (const PartPointer& seen : live->sees) {
        if (!seen->done) spec.after.push_back(*seen->sequence);
      }
    } else if (!live->done) {
      admission.waits_for.push_back(*live->sequence);
    }
    if (!live->done) {
      live->waiters.push_back(main);
      ++admitted.waits_for;
    }
    parts.push_back(std::move(live));
  }
  admitted.parts = std::move(parts);
  if (admitted.repair_blocks > 0) admission.missing.push_back(AddRepair(main, admitted));
  // A part that stands in several places is computed at most once.
  std::vector<bool> counted(admitted.parts.size());
  for (const ChunkLayout::Place& place : layout.places) {
    const LivePart& part = *admitted.parts[place.part];
    if (part.done || counted[place.part]) admitted.costs.cached_tokens += part.length;
    counted[place.part] = true;
  }
  CountHits(admitted);
  admitted.admitted_us = clock_->NowUs();
  admitted.costs.ledger.lookup_us += admitted.admitted_us - begin_us;
  return admission;
}

void PromptParts::Abandon(SequenceId main) {
  Main& admitted = mains_.at(main);
  admitted.waits_for = 0;
  const Held held{.parts = std::exchange(admitted.parts, {}),
                  .repair = std::exchange(admitted.repair, nullptr)};
  for (const PartPointer& part : held.parts) std::erase(part->waiters, main);
}

PromptParts::PartPointer PromptParts::Find(const ChunkLayout& layout,
                                           const ChunkLayout::Part& part) {
  if (part.kind == ChunkKind::kSystem) {
    PartPointer live = FindLive(part);
    return live != nullptr ? live : FindSystem(layout, part);
  }
  PartPointer stored = FindChunk(part);
  return stored != nullptr ? stored : FindLive(part);
}

PromptParts::PartPointer PromptParts::FindLive(const ChunkLayout::Part& part) const {
  const auto found = live_.find(part.key);
  if (found == live_.end()) return nullptr;
  PartPointer live = found->second.lock();
  return live != nullptr && live->tokens == part.tokens ? live : nullptr;
}

PromptParts::PartPointer PromptParts::FoundPart(const ChunkLayout::Part& part) {
  auto found = std::make_shared<LivePart>(this);
  found->key = part.key;
  found->kind = part.kind;
  found->length = static_cast<int32_t>(part.tokens.size());
  found->position = part.position;
  found->done = true;
  return found;
}

PromptParts::PartPointer PromptParts::FindChunk(const ChunkLayout::Part& part) {
  ChunkCache::Reference stored = FindStored(part);
  if (!stored) return nullptr;
  PartPointer found = FoundPart(part);
  found->blocks.assign(stored.blocks().begin(), stored.blocks().end());
  found->stored = std::move(stored);
  return found;
}

PromptParts::PartPointer PromptParts::FindSystem(const ChunkLayout& layout,
                                                 const ChunkLayout::Part& part) {
  ChunkCache::Reference tail;
  int32_t in_tree = BlocksInTree(part);
  if (HasTail(part)) {
    tail = chunks_.Find(part.key, part.tokens);
    if (!tail) return nullptr;
    in_tree = tail.first_block();
  }
  PartPointer found = FoundPart(part);
  if (in_tree > 0) {
    const std::vector<CacheUnit> units = UnitsFromTokens(part.tokens);
    const size_t tokens = static_cast<size_t>(in_tree) * cache_->options().block_size;
    const SequenceId id = NewId();
    if (!cache_->BeginCached(id, layout.cache_namespace, std::span(units).first(tokens))) {
      return nullptr;
    }
    found->cached_sequence = id;
    const std::span<const BlockId> table = cache_->BlockTable(id);
    found->blocks.assign(table.begin(), table.end());
  }
  if (tail) {
    found->blocks.insert(found->blocks.end(), tail.blocks().begin(), tail.blocks().end());
    found->stored = std::move(tail);
  }
  return found;
}

PromptParts::PartPointer PromptParts::Create(const ChunkLayout::Part& part, SequenceId main,
                                             const std::vector<PartPointer>& parts) {
  auto created = std::make_shared<LivePart>(this);
  created->key = part.key;
  created->kind = part.kind;
  created->length = static_cast<int32_t>(part.tokens.size());
  created->position = part.position;
  created->tokens = part.tokens;
  created->created_by = main;
  created->sequence = NewId();
  if (part.kind != ChunkKind::kSystem && tier_ != nullptr) {
    created->asleep = tier_->ToWake(part.key, part.tokens);
    created->wakes = created->asleep != nullptr;
  }
  for (const int32_t seen : part.sees) created->sees.push_back(parts[seen]);
  by_id_.emplace(*created->sequence, created.get());
  live_[part.key] = created;
  return created;
}

bool PromptParts::EvictOne(SequenceId wanted_by) {
  if (const auto found = mains_.find(wanted_by); found != mains_.end()) {
    for (const ChunkLayout::Part& part : found->second.layout->parts) {
      chunks_.Touch(part.key, part.tokens);
    }
  }
  return chunks_.EvictOne() > 0;
}

// ---- frames -------------------------------------------------------------------------------------

std::shared_ptr<const SequenceFrame> PromptParts::FrameOfPart(SequenceId id) {
  if (repairs_.contains(id)) return FrameOfRepairIfReady(id);
  LivePart& part = *by_id_.at(id);
  const std::span<const BlockId> table = cache_->BlockTable(id);
  part.blocks.assign(table.begin(), table.end());
  if (part.wakes) tier_->Wake(part.key, std::move(part.asleep), part.length, id, part.blocks);
  if (part.sees.empty()) return nullptr;
  std::vector<FramePart> frame;
  for (const PartPointer& seen : part.sees) {
    frame.push_back({.blocks = seen->blocks,
                     .tokens = seen->length,
                     .shift = 0,
                     .continues = seen->kind == ChunkKind::kPiece});
  }
  return std::make_shared<const SequenceFrame>(
      MakeFrame(frame, part.position, cache_->options().block_size));
}

SequenceFrame PromptParts::UnrepairedFrame(const Main& main) const {
  const ChunkLayout& layout = *main.layout;
  std::vector<FramePart> frame;
  frame.reserve(layout.places.size());
  for (const ChunkLayout::Place& place : layout.places) {
    const ChunkLayout::Part& part = layout.parts[place.part];
    frame.push_back({.blocks = main.parts[place.part]->blocks,
                     .tokens = static_cast<int32_t>(part.tokens.size()),
                     .shift = place.shift,
                     .continues = part.kind == ChunkKind::kPiece});
  }
  return MakeFrame(frame, layout.question_position, cache_->options().block_size);
}

std::shared_ptr<const SequenceFrame> PromptParts::FrameIfReady(SequenceId id) {
  Main& main = mains_.at(id);
  if (auto made = main.frame.lock()) return made;
  if (main.waits_for > 0 || main.parts.empty() || !IsRepaired(main)) return nullptr;
  const int64_t begin_us = clock_->NowUs();
  auto made = std::make_shared<SequenceFrame>(main.repair == nullptr ? UnrepairedFrame(main)
                                                                     : TakeRepairedFrame(main));
  auto holds = std::make_shared<const Held>(
      Held{.parts = std::exchange(main.parts, {}), .repair = std::exchange(main.repair, nullptr)});
  main.frame = made;
  main.framed = holds;
  made->holds = std::move(holds);
  // If it is preempted later, its missing parts are computed here.
  if (main.use == Use::kReceived) main.use = Use::kLocal;
  main.costs.ledger.place_us += clock_->NowUs() - begin_us;
  return made;
}

// ---- parts are computed -------------------------------------------------------------------------

void PromptParts::OnComputed(const ScheduledChunk& chunk, std::span<const float> changes) {
  if (const auto repair = repairs_.find(chunk.id); repair != repairs_.end()) {
    return OnRowsComputed(*repair->second, chunk, changes);
  }
  const auto found = by_id_.find(chunk.id);
  if (found == by_id_.end()) return;
  LivePart& part = *found->second;
  part.computed += chunk.count;
  if (const auto main = mains_.find(part.created_by); main != mains_.end()) {
    main->second.costs.computed_tokens += chunk.count;
    main->second.costs.slices += 1;
  }
  if (part.done || cache_->committed(chunk.id) < part.length) return;
  Done(part);
}

void PromptParts::Done(LivePart& part) {
  part.done = true;
  Store(part);
  const std::vector<PartPointer> saw = std::move(part.sees);
  part.sees.clear();
  const int64_t now_us = clock_->NowUs();
  for (const SequenceId waiter : std::exchange(part.waiters, {})) {
    Main& main = mains_.at(waiter);
    const int32_t own = waiter == part.created_by ? part.computed + part.received : 0;
    main.costs.cached_tokens += part.length - own;
    (part.wakes ? main.costs.ledger.wake_us : main.costs.ledger.compute_us) =
        now_us - main.admitted_us;
    if (part.wakes) CountWoken(part, main);
    const bool ready = --main.waits_for == 0;
    if (ready && tier_ != nullptr) {
      tier_->OnComputed(main.costs.computed_tokens, main.costs.ledger.compute_us);
    }
    if (main.use == Use::kSent || (main.use == Use::kReceived && ready)) {
      progress_.push_back(waiter);
    }
    if (!ready || main.use == Use::kReceived) continue;
    if (main.repair == nullptr) {
      scheduler_->PartsReady(waiter);
    } else {
      BeginRepair(main);
    }
  }
}

// Stores the blocks of a part that the prefix tree does not keep. Without room in the chunk cache,
// the part is bypassed.
void PromptParts::Store(LivePart& part) {
  const SequenceId id = *part.sequence;
  const bool is_system = part.kind == ChunkKind::kSystem;
  const int32_t first = is_system ? cache_->shared_tokens(id) / cache_->options().block_size : 0;
  const auto rest = std::span<const BlockId>(part.blocks).subspan(first);
  const bool in_tree =
      is_system && SharesPrefixes() && part.length % cache_->options().block_size == 0;
  if (rest.empty() || in_tree) return;
  part.stored = chunks_.Store({.key = part.key,
                               .tokens = part.tokens,
                               .position = part.position,
                               .first_block = first,
                               .blocks = rest,
                               .sleeps = !is_system});
  if (!part.stored || is_system) return;
  if (tier_ != nullptr) tier_->Forget(part.key);
  scheduler_->Finish(id, /*keep_cached=*/false);
}

// The last user of the part is gone.
void PromptParts::Drop(LivePart& part) {
  if (part.cached_sequence.has_value()) cache_->Release(*part.cached_sequence, /*keep=*/false);
  if (part.asleep != nullptr) tier_->LeaveAsleep(part.asleep);
  if (!part.sequence.has_value()) return;
  by_id_.erase(*part.sequence);
  const auto live = live_.find(part.key);
  if (live != live_.end() && live->second.expired()) live_.erase(live);
  if (!scheduler_->Contains(*part.sequence)) return;
  // A system part is in the prefix tree already. What is not may be in the chunk cache.
  scheduler_->Finish(*part.sequence, /*keep_cached=*/false);
}

}  // namespace baton
