#include "cache/kv_cache_manager.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "cache/kv_cache_spec.h"
#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

KvCacheManager::KvCacheManager(const KvCacheOptions& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      allocator_(options.num_blocks, std::max(options.num_blocks, options.max_blocks)),
      tree_(options.block_size, &allocator_, options.eviction_policy, options.hash_seed),
      resize_(&allocator_, &tree_),
      trace_(options.record_trace, clock) {
  CHECK_GE(options.num_blocks, 1);
  CHECK_LT(options.windows.size(), size_t{kMaxKvGroups});
  for (const WindowPoolOptions& window : options.windows) {
    windows_.push_back(std::make_unique<WindowTables>(
        groups(), window, options.block_size, options.max_step_tokens, allocator_.capacity(),
        options.eviction_policy));
    tree_.AddWindow(&windows_.back()->cache());
  }
  if (publishes()) tree_.PublishTo(&events_);
  CHECK(options.block_size >= kMinBlockSize && options.block_size <= kMaxBlockSize &&
        std::has_single_bit(static_cast<uint32_t>(options.block_size)))
      << "block_size " << options.block_size;
  CHECK_GE(options.min_prefix_tokens, 0);
  CHECK(options.max_blocks == 0 || options.max_blocks >= options.num_blocks)
      << options.max_blocks << " blocks at most, " << options.num_blocks << " to begin with";
  CHECK(options.paged || !caches()) << "contiguous mode excludes the prefix cache";
  CHECK(0 < options.low_water && options.low_water <= options.high_water && options.high_water <= 1)
      << "water marks " << options.high_water << " and " << options.low_water;
}

KvCacheManager::~KvCacheManager() {
  while (!sequences_.empty()) Release(sequences_.begin()->first, /*keep=*/false);
}

KvCacheManager::SequenceKv& KvCacheManager::Get(SequenceId id) {
  const auto it = sequences_.find(id);
  CHECK(it != sequences_.end()) << "no KV of sequence " << id;
  return it->second;
}

const KvCacheManager::SequenceKv& KvCacheManager::Get(SequenceId id) const {
  const auto it = sequences_.find(id);
  CHECK(it != sequences_.end()) << "no KV of sequence " << id;
  return it->second;
}

// ---- a sequence's life --------------------------------------------------------------------------

// With chunk-only each sequence is alone in a namespace of its own.
CacheNamespace KvCacheManager::NamespaceOf(SequenceId id, CacheNamespace requested) const {
  return options_.kind == CacheKind::kRadix ? requested : CacheNamespace(id.value());
}

int32_t KvCacheManager::MaxMatchBlocks(std::span<const CacheUnit> units) const {
  if (!caches() || units.empty()) return 0;
  return static_cast<int32_t>((units.size() - 1) / options_.block_size);
}

absl::Status KvCacheManager::BeginRun(SequenceKv& kv, int32_t max_tokens) {
  const int32_t blocks = BlocksFor(max_tokens);
  if (allocator_.AllocateRun(blocks, BlockHolder::kSequence, kv.table)) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("no run of ", blocks, " free blocks for ", max_tokens,
                                             " tokens; ", allocator_.free_count(), " of ",
                                             allocator_.total(), " blocks are free"));
}

void KvCacheManager::BeginMatch(SequenceKv& kv, std::span<const CacheUnit> units,
                                int32_t priority) {
  Adopt(kv,
        tree_.Match(kv.cache_namespace, units, MaxMatchBlocks(units), MinMatchBlocks(), priority));
}

void KvCacheManager::Adopt(SequenceKv& kv, RadixMatch match) {
  allocator_.AddHolds(match.blocks, BlockHolder::kSequence);
  kv.lock = std::move(match.lock);
  kv.table = std::move(match.blocks);
  kv.shared_blocks = static_cast<int32_t>(kv.table.size());
  kv.matched = kv.committed = kv.shared_blocks * options_.block_size;
}

absl::StatusOr<int32_t> KvCacheManager::Begin(SequenceId id, CacheNamespace cache_namespace,
                                              std::span<const CacheUnit> units, int32_t max_tokens,
                                              int32_t priority) {
  CHECK(!sequences_.contains(id)) << "sequence " << id << " has begun already";
  CHECK_GE(max_tokens, static_cast<int64_t>(units.size()));
  SequenceKv kv;
  kv.cache_namespace = NamespaceOf(id, cache_namespace);
  if (!options_.paged) {
    if (absl::Status status = BeginRun(kv, max_tokens); !status.ok()) return status;
    const auto run = static_cast<int32_t>(kv.table.size());
    if (absl::Status status = BeginWindowRuns(id, run); !status.ok()) {
      allocator_.ReleaseHolds(kv.table, BlockHolder::kSequence);
      return status;
    }
  } else if (caches()) {
    BeginMatch(kv, units, priority);
  }
  if (options_.paged) {
    for (const auto& window : windows_) window->Begin(id, kv.table, priority);
  }
  ++totals_.lookups;
  totals_.lookup_tokens += static_cast<int64_t>(units.size());
  totals_.hits += kv.matched > 0 ? 1 : 0;
  totals_.hit_tokens += kv.matched;
  const int32_t matched = kv.matched;
  const int32_t blocks = static_cast<int32_t>(kv.table.size());
  sequences_.emplace(id, std::move(kv));
  Trace(options_.paged ? AllocationEvent::Kind::kMatch : AllocationEvent::Kind::kReserve, id,
        matched, blocks);
  return matched;
}

absl::Status KvCacheManager::Reserve(SequenceId id, int32_t tokens) {
  SequenceKv& kv = Get(id);
  if (!windows_.empty()) return ReserveAll(id, tokens, /*imports=*/false);
  const Missing missing = MissingFor(kv, tokens);
  return missing.blocks == 0 ? absl::OkStatus() : ReserveFull(id, kv, tokens, missing);
}

absl::Status KvCacheManager::ReserveFull(SequenceId id, SequenceKv& kv, int32_t tokens,
                                         Missing lacking) {
  const auto [missing, copies] = lacking;
  if (missing == 0) return absl::OkStatus();
  const int32_t more = missing - (copies ? 1 : 0);
  if (!options_.paged) {
    return absl::ResourceExhaustedError(StrCat(tokens, " tokens exceed the contiguous run of ",
                                               kv.table.size() * options_.block_size));
  }
  if (missing > available_blocks()) {
    return absl::ResourceExhaustedError(StrCat(missing, " more blocks needed for ", tokens,
                                               " tokens, ", available_blocks(), " of ",
                                               num_blocks(), " can be had"));
  }
  MakeFree(id, kv.committed, missing);
  if (copies) CopyOnWrite(kv);
  CHECK(allocator_.Allocate(more, BlockHolder::kSequence, kv.table));
  Trace(AllocationEvent::Kind::kReserve, id, kv.committed, missing);
  KeepWaterMarks(id, kv.committed);
  return absl::OkStatus();
}

void KvCacheManager::Commit(SequenceId id, std::span<const CacheUnit> units) {
  SequenceKv& kv = Get(id);
  const int64_t committed = kv.committed + static_cast<int64_t>(units.size());
  CHECK_LE(committed, capacity(id)) << "sequence " << id << " commits more than it reserved";
  kv.committed = static_cast<int32_t>(committed);
  if (caches()) {
    kv.private_units.insert(kv.private_units.end(), units.begin(), units.end());
  }
}

void KvCacheManager::InsertCommitted(SequenceId id) {
  if (options_.kind == CacheKind::kRadix) InsertFullBlocks(id);
}

void KvCacheManager::InsertFullBlocks(SequenceId id) {
  SequenceKv& kv = Get(id);
  const int32_t full_blocks = kv.committed / options_.block_size;
  const int32_t count = full_blocks - kv.shared_blocks;
  if (count <= 0) return;
  const auto units = std::span(kv.private_units).first(size_t(count) * options_.block_size);
  const auto blocks = std::span(kv.table).subspan(kv.shared_blocks, count);
  const std::vector<BlockId> own(blocks.begin(), blocks.end());
  const int32_t present = tree_.Insert(kv.lock, units, blocks);
  for (int32_t i = 0; i < present; ++i) {
    allocator_.AddHold(blocks[i], BlockHolder::kSequence);
    allocator_.ReleaseHold(own[i], BlockHolder::kSequence);
  }
  kv.private_units.erase(kv.private_units.begin(), kv.private_units.begin() + units.size());
  for (const auto& window : windows_) window->Insert(id, kv.shared_blocks, blocks);
  kv.shared_blocks = full_blocks;
  Trace(AllocationEvent::Kind::kInsert, id, kv.committed, count - present);
}

void KvCacheManager::Release(SequenceId id, bool keep) {
  if (keep) InsertCommitted(id);
  End(id, /*forget=*/options_.kind == CacheKind::kChunkOnly);
}

void KvCacheManager::Preempt(SequenceId id) {
  if (caches()) InsertFullBlocks(id);
  End(id, /*forget=*/false);
}

void KvCacheManager::End(SequenceId id, bool forget) {
  SequenceKv kv = std::move(Get(id));
  sequences_.erase(id);
  allocator_.ReleaseHolds(kv.table, BlockHolder::kSequence);
  if (forget) {
    tree_.Forget(std::move(kv.lock));
  } else {
    kv.lock.Drop();
  }
  for (const auto& window : windows_) window->Release(id);
  resize_.Ended(id);
  Trace(AllocationEvent::Kind::kRelease, id, kv.committed, static_cast<int32_t>(kv.table.size()));
  KeepWaterMarks(id, kv.committed);
}

// ---- forks --------------------------------------------------------------------------------------

absl::Status KvCacheManager::Fork(SequenceId parent, SequenceId child) {
  CHECK(!sequences_.contains(child)) << "sequence " << child << " has begun already";
  if (!options_.paged) {
    return absl::FailedPreconditionError("a contiguous sequence cannot share its run with a fork");
  }
  for (const auto& window : windows_) {
    absl::Status status = window->CheckRoomToFork(parent, Get(parent).committed);
    if (!status.ok()) return status;
  }
  // Then full blocks are shared through the tree, and at most a part-full one directly.
  if (caches()) InsertFullBlocks(parent);
  SequenceKv& from = Get(parent);
  SequenceKv kv;
  kv.cache_namespace = from.cache_namespace;
  kv.matched = kv.committed = from.committed;
  kv.shared_blocks = from.shared_blocks;
  kv.table.assign(from.table.begin(), from.table.begin() + BlocksFor(from.committed));
  kv.private_units = from.private_units;
  if (from.lock) kv.lock = tree_.Duplicate(from.lock);
  allocator_.AddHolds(kv.table, BlockHolder::kSequence);
  for (const auto& window : windows_) window->Fork(parent, child, kv.committed);
  resize_.Forked(parent, child);
  const int32_t committed = kv.committed, blocks = static_cast<int32_t>(kv.table.size());
  sequences_.emplace(child, std::move(kv));
  Trace(AllocationEvent::Kind::kMatch, child, committed, blocks);
  return absl::OkStatus();
}

void KvCacheManager::CopyOnWrite(SequenceKv& kv) {
  BlockId& tail = kv.table[kv.committed / options_.block_size];
  const std::optional<BlockId> own = allocator_.MakeWritable(tail, BlockHolder::kSequence);
  CHECK(own.has_value());
  copies_.push_back({.from = tail, .to = *own, .tokens = kv.committed % options_.block_size});
  tail = *own;
}

// ---- what a sequence has ------------------------------------------------------------------------

bool KvCacheManager::Contains(SequenceId id) const { return sequences_.contains(id); }

std::span<const BlockId> KvCacheManager::BlockTable(SequenceId id) const { return Get(id).table; }

std::span<const BlockId> KvCacheManager::BlockTable(SequenceId id, int32_t group) const {
  return group == 0 ? BlockTable(id) : windows_[group - 1]->Table(id);
}

int32_t KvCacheManager::committed(SequenceId id) const { return Get(id).committed; }

int32_t KvCacheManager::capacity(SequenceId id) const {
  return static_cast<int32_t>(Get(id).table.size()) * options_.block_size;
}

int32_t KvCacheManager::matched(SequenceId id) const { return Get(id).matched; }

int32_t KvCacheManager::shared_tokens(SequenceId id) const {
  return Get(id).shared_blocks * options_.block_size;
}

}  // namespace baton
