#include "cache/kv_cache_manager.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "cache/kv_cache_spec.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::StatusOr<std::vector<WindowPoolOptions>> WindowsOf(const KvCacheSpec& spec) {
  RETURN_IF_ERROR(CheckKvCacheSpec(spec));
  std::vector<WindowPoolOptions> windows;
  for (const KvGroupSpec& group : spec.groups) {
    if (group.kind == KvGroupKind::kSlidingWindow) windows.push_back({.window = group.window});
  }
  return windows;
}

KvCacheManager::KvCacheManager(const KvCacheOptions& options, const Clock* clock)
    : options_(options),
      rules_(RulesOf(options.kind)),
      marks_{.high = options.high_water, .low = options.low_water},
      trace_(options.record_trace, clock),
      cache_(options.num_blocks, std::max(options.num_blocks, options.max_blocks),
             options.block_size, options.eviction_policy, options.hash_seed),
      windows_(options.windows,
               {.block_size = options.block_size,
                .max_step_tokens = options.max_step_tokens,
                .full_blocks = cache_.blocks().capacity(),
                .policy = options.eviction_policy},
               &cache_.tree(), &trace_),
      tables_(options.block_size, rules_.caches, &cache_) {
  CHECK_GE(options.num_blocks, 1);
  if (publishes()) cache_.Publish();
  CHECK(options.block_size >= kMinBlockSize && options.block_size <= kMaxBlockSize &&
        std::has_single_bit(static_cast<uint32_t>(options.block_size)))
      << "block_size " << options.block_size;
  CHECK_GE(options.min_prefix_tokens, 0);
  CHECK(options.max_blocks == 0 || options.max_blocks >= options.num_blocks)
      << options.max_blocks << " as max_blocks, but " << options.num_blocks << " as num_blocks";
  CHECK(options.paged || !rules_.caches) << "contiguous mode excludes the prefix cache";
  CHECK(0 < options.low_water && options.low_water <= options.high_water && options.high_water <= 1)
      << "water marks " << options.high_water << " and " << options.low_water;
}

KvCacheManager::~KvCacheManager() {
  while (!tables_.empty()) Release(tables_.first(), /*keep=*/false);
}

// ---- begin, reserve, insert, release, fork ------------------------------------------------------

// With chunk-only, each sequence has its own namespace.
CacheNamespace KvCacheManager::NamespaceOf(SequenceId id, CacheNamespace requested) const {
  return rules_.shares ? requested : CacheNamespace(id.value());
}

int32_t KvCacheManager::MaxMatchBlocks(std::span<const CacheUnit> units) const {
  if (!rules_.caches || units.empty()) return 0;
  return static_cast<int32_t>((units.size() - 1) / options_.block_size);
}

absl::Status KvCacheManager::BeginRuns(SequenceId id, int32_t max_tokens) {
  const int32_t blocks = BlocksFor(max_tokens);
  if (!tables_.BeginRun(id, blocks)) {
    return absl::ResourceExhaustedError(
        StrCat("no run of ", blocks, " free blocks for ", max_tokens, " tokens; ",
               cache_.blocks().free_count(), " of ", cache_.blocks().total(), " blocks are free"));
  }
  absl::Status in_windows = windows_.BeginRuns(id, blocks);
  if (!in_windows.ok()) tables_.Release(id, /*forgets=*/false);
  return in_windows;
}

absl::StatusOr<int32_t> KvCacheManager::Begin(SequenceId id, CacheNamespace cache_namespace,
                                              std::span<const CacheUnit> units, int32_t max_tokens,
                                              int32_t priority, const CacheOwner& owner) {
  CHECK(!Contains(id)) << "sequence " << id << " already exists";
  CHECK_GE(max_tokens, static_cast<int64_t>(units.size()));
  if (!options_.paged) {
    RETURN_IF_ERROR(BeginRuns(id, max_tokens));
  } else {
    RadixMatch match;
    if (rules_.caches) {
      match = cache_.tree().Match(NamespaceOf(id, cache_namespace), units, MaxMatchBlocks(units),
                                  MinMatchBlocks(), priority, owner);
    }
    tables_.Begin(id, std::move(match));
    windows_.Begin(id, tables_.Table(id), priority);
  }
  const int32_t matched = tables_.matched(id);
  ++totals_.lookups;
  totals_.lookup_tokens += static_cast<int64_t>(units.size());
  totals_.hits += matched > 0 ? 1 : 0;
  totals_.hit_tokens += matched;
  Trace(options_.paged ? AllocationEvent::Kind::kMatch : AllocationEvent::Kind::kReserve, id,
        matched, static_cast<int32_t>(tables_.Table(id).size()));
  return matched;
}

absl::Status KvCacheManager::Reserve(SequenceId id, int32_t tokens) {
  if (!windows_.empty()) return ReserveAll(id, tokens, /*imports=*/false);
  const FullTables::Missing missing = tables_.MissingFor(id, tokens);
  return missing.blocks == 0 ? absl::OkStatus() : ReserveFull(id, tokens, missing);
}

absl::Status KvCacheManager::ReserveForImport(SequenceId id, int32_t tokens) {
  return ReserveAll(id, tokens, /*imports=*/true);
}

// Checks every window's room before taking anything. Evicting blocks of group 0 afterwards can only
// free window blocks.
absl::Status KvCacheManager::ReserveAll(SequenceId id, int32_t tokens, bool imports) {
  ASSIGN_OR_RETURN(const WindowGroups::Growths growths,
                   windows_.PlanGrowth(id, committed(id), tokens, imports));
  const FullTables::Missing missing = tables_.MissingFor(id, tokens);
  if (missing.blocks > 0) RETURN_IF_ERROR(ReserveFull(id, tokens, missing));
  windows_.Grow(id, growths, copies_);
  return absl::OkStatus();
}

// REQUIRES: missing.blocks > 0.
absl::Status KvCacheManager::ReserveFull(SequenceId id, int32_t tokens,
                                         FullTables::Missing missing) {
  if (!options_.paged) {
    return absl::ResourceExhaustedError(
        StrCat(tokens, " tokens exceed the contiguous run of ", capacity(id)));
  }
  if (missing.blocks > available_blocks()) {
    return absl::ResourceExhaustedError(StrCat(missing.blocks, " more blocks needed for ", tokens,
                                               " tokens, ", available_blocks(), " of ",
                                               num_blocks(), " are available"));
  }
  const int32_t evicted = cache_.MakeFree(missing.blocks);
  if (evicted > 0) Trace(AllocationEvent::Kind::kEvict, id, missing.committed, evicted);
  const std::optional<BlockCopy> copy = tables_.Grow(id, missing);
  if (copy) copies_.push_back(*copy);
  Trace(AllocationEvent::Kind::kReserve, id, missing.committed, missing.blocks);
  KeepWaterMarks(id, missing.committed);
  return absl::OkStatus();
}

int32_t KvCacheManager::WholeBoundary(SequenceId id, int32_t landed, int32_t asked) const {
  const int32_t from = committed(id);
  if (landed < asked) {
    for (const WindowPoolOptions& window : options_.windows) {
      if (asked - window.window + 1 > from) return from;
    }
  }
  return windows_.LongestWhole(id, from, landed);
}

void KvCacheManager::InsertFullBlocks(SequenceId id) {
  const FullTables::Inserted inserted = tables_.Insert(id);
  if (inserted.count == 0) return;
  if (!windows_.empty()) {
    const auto blocks = tables_.Table(id).subspan(inserted.first, inserted.count);
    windows_.Insert(id, inserted.first, blocks, cache_.tree().OwnerOf(blocks[0]));
  }
  Trace(AllocationEvent::Kind::kInsert, id, inserted.committed, inserted.fresh);
}

void KvCacheManager::Release(SequenceId id, bool keep) {
  if (keep) InsertCommitted(id);
  End(id, rules_.forgets);
}

void KvCacheManager::Preempt(SequenceId id) {
  if (rules_.caches) InsertFullBlocks(id);
  End(id, /*forgets=*/false);
}

void KvCacheManager::End(SequenceId id, bool forgets) {
  const FullTables::Released released = tables_.Release(id, forgets);
  windows_.Release(id);
  cache_.Ended(id);
  Trace(AllocationEvent::Kind::kRelease, id, released.committed, released.blocks);
  KeepWaterMarks(id, released.committed);
}

absl::Status KvCacheManager::Fork(SequenceId parent, SequenceId child) {
  CHECK(!Contains(child)) << "sequence " << child << " already exists";
  if (!options_.paged) {
    return absl::FailedPreconditionError("a contiguous sequence cannot share its run with a fork");
  }
  const int32_t committed = tables_.committed(parent);
  RETURN_IF_ERROR(windows_.CheckRoomToFork(parent, committed));
  // Afterwards forks share full blocks through the tree and at most a part-full block directly.
  if (rules_.caches) InsertFullBlocks(parent);
  tables_.Fork(parent, child);
  windows_.Fork(parent, child, committed);
  cache_.Forked(parent, child);
  Trace(AllocationEvent::Kind::kMatch, child, committed,
        static_cast<int32_t>(tables_.Table(child).size()));
  return absl::OkStatus();
}

// ---- blocks that a sequence needs ---------------------------------------------------------------

BlockCounts KvCacheManager::BlocksToHold(int32_t tokens) const {
  BlockCounts blocks(BlocksFor(tokens));
  if (options_.paged) {
    windows_.ChargeToAdmit(0, tokens, blocks);
    return blocks;
  }
  return OfEveryGroup(blocks.full());
}

BlockCounts KvCacheManager::BlocksToAdmit(CacheNamespace cache_namespace,
                                          std::span<const CacheUnit> units, int32_t max_tokens,
                                          SequenceId id) const {
  if (!options_.paged) return BlocksToHold(max_tokens);
  const auto tokens = static_cast<int32_t>(units.size());
  RadixPeek peek =
      cache_.tree().Peek(NamespaceOf(id, cache_namespace), units, MaxMatchBlocks(units));
  if (peek.blocks < MinMatchBlocks()) peek = {};
  BlockCounts blocks(BlocksFor(tokens) - peek.blocks + peek.evictable_blocks);
  windows_.ChargeToAdmit(peek.blocks * options_.block_size, tokens, blocks);
  return blocks;
}

int32_t KvCacheManager::PeekMatch(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                                  SequenceId id) const {
  const RadixPeek peek =
      cache_.tree().Peek(NamespaceOf(id, cache_namespace), units, MaxMatchBlocks(units));
  return peek.blocks < MinMatchBlocks() ? 0 : peek.blocks * options_.block_size;
}

}  // namespace baton
