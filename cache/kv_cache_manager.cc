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
      tree_(options.block_size, &allocator_, options.eviction_policy, options.hash_seed) {
  CHECK_GE(options.num_blocks, 1);
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
  } else if (caches()) {
    BeginMatch(kv, units, priority);
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
  const int32_t more = std::max(0, BlocksFor(tokens) - static_cast<int32_t>(kv.table.size()));
  const bool copies = tokens > kv.committed && WritesSharedBlock(kv);
  const int32_t missing = more + (copies ? 1 : 0);
  if (missing == 0) return absl::OkStatus();
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
  kv.shared_blocks = full_blocks;
  Trace(AllocationEvent::Kind::kInsert, id, kv.committed, count - present);
}

void KvCacheManager::Truncate(SequenceId id, int32_t tokens) {
  SequenceKv& kv = Get(id);
  CHECK_GE(tokens, shared_tokens(id)) << "truncation into the read-only prefix of " << id;
  kv.committed = std::min(kv.committed, tokens);
  if (caches()) kv.private_units.resize(kv.committed - shared_tokens(id));
  const size_t kept = BlocksFor(tokens);
  if (!options_.paged || kept >= kv.table.size()) return;
  const auto dropped = std::span(kv.table).subspan(kept);
  allocator_.ReleaseHolds(dropped, BlockHolder::kSequence);
  Trace(AllocationEvent::Kind::kRelease, id, kv.committed, static_cast<int32_t>(dropped.size()));
  kv.table.resize(kept);
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
  earlier_.erase(id);
  RetireCached();
  Trace(AllocationEvent::Kind::kRelease, id, kv.committed, static_cast<int32_t>(kv.table.size()));
  KeepWaterMarks(id, kv.committed);
}

// ---- forks --------------------------------------------------------------------------------------

absl::Status KvCacheManager::Fork(SequenceId parent, SequenceId child) {
  CHECK(!sequences_.contains(child)) << "sequence " << child << " has begun already";
  if (!options_.paged) {
    return absl::FailedPreconditionError("a contiguous sequence cannot share its run with a fork");
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
  if (earlier_.contains(parent)) earlier_.insert(child);  // it has blocks of that time
  const int32_t committed = kv.committed, blocks = static_cast<int32_t>(kv.table.size());
  sequences_.emplace(child, std::move(kv));
  Trace(AllocationEvent::Kind::kMatch, child, committed, blocks);
  return absl::OkStatus();
}

bool KvCacheManager::WritesSharedBlock(const SequenceKv& kv) const {
  if (kv.committed % options_.block_size == 0) return false;
  const BlockId tail = kv.table[kv.committed / options_.block_size];
  return allocator_.holds(tail, BlockHolder::kSequence) > 1;
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

int32_t KvCacheManager::committed(SequenceId id) const { return Get(id).committed; }

int32_t KvCacheManager::capacity(SequenceId id) const {
  return static_cast<int32_t>(Get(id).table.size()) * options_.block_size;
}

int32_t KvCacheManager::matched(SequenceId id) const { return Get(id).matched; }

int32_t KvCacheManager::shared_tokens(SequenceId id) const {
  return Get(id).shared_blocks * options_.block_size;
}

// ---- transfers ----------------------------------------------------------------------------------

void KvCacheManager::Pin(std::span<const BlockId> blocks, BlockHolder holder) {
  for (const BlockId block : blocks) {
    holder == BlockHolder::kStep ? allocator_.Claim(block, holder)
                                 : allocator_.AddHold(block, holder);
    if (allocator_.pins(block) == 1) tree_.PinBlock(block);
  }
}

void KvCacheManager::Unpin(std::span<const BlockId> blocks, BlockHolder holder) {
  for (const BlockId block : blocks) {
    allocator_.ReleaseHold(block, holder);
    if (allocator_.pins(block) == 0) tree_.UnpinBlock(block);
  }
  RetireCached();
}

void KvCacheManager::HoldForTransfer(std::span<const BlockId> blocks) {
  Pin(blocks, BlockHolder::kTransfer);
}

void KvCacheManager::ReleaseTransferHold(std::span<const BlockId> blocks) {
  Unpin(blocks, BlockHolder::kTransfer);
}

void KvCacheManager::HoldForStep(std::span<const BlockId> blocks) {
  Pin(blocks, BlockHolder::kStep);
}

void KvCacheManager::ReleaseStepHold(std::span<const BlockId> blocks) {
  Unpin(blocks, BlockHolder::kStep);
}

// ---- the pool -----------------------------------------------------------------------------------

int32_t KvCacheManager::available_blocks() const {
  return std::max(0, allocator_.free_count() + tree_.evictable_blocks() - allocator_.retiring());
}

absl::Status KvCacheManager::Resize(int32_t blocks) {
  if (blocks < 1 || blocks > allocator_.capacity()) {
    return absl::InvalidArgumentError(
        StrCat("a pool of ", blocks, " blocks; [1, ", allocator_.capacity(), "] is allowed"));
  }
  allocator_.Resize(blocks);
  earlier_.clear();
  for (const auto& [id, kv] : sequences_) earlier_.insert(id);
  forgot_popular_ = false;
  if (allocator_.retiring() > 0) tree_.EvictFrom(BlockId(blocks));
  RetireCached();
  return absl::OkStatus();
}

// Frees what is cached behind the end of the pool and nobody uses. What is still cached there when
// no earlier sequence lives is used by later ones, and cut off from those to come; nothing new can
// come to be cached there then.
void KvCacheManager::RetireCached() {
  if (allocator_.retiring() == 0) return;
  if (tree_.HasUnlockedBehind()) tree_.EvictFrom(BlockId(num_blocks()));
  if (!earlier_.empty() || forgot_popular_) return;
  forgot_popular_ = true;
  for (int32_t i = num_blocks(); i < max_blocks(); ++i) {
    if (!tree_.ContainsBlock(BlockId(i))) continue;
    tree_.Clear();
    return;
  }
}

std::vector<BlockRange> KvCacheManager::RetiredBlocks() const {
  std::vector<BlockRange> runs;
  for (int32_t i = num_blocks(); i < max_blocks(); ++i) {
    if (!allocator_.is_free(BlockId(i))) continue;
    if (runs.empty() || runs.back().end < i) runs.push_back({.begin = i, .end = i});
    runs.back().end = i + 1;
  }
  return runs;
}

int32_t KvCacheManager::blocks_in_transfer() const { return allocator_.Account().in_transfer; }

int32_t KvCacheManager::BlocksFor(int32_t tokens) const {
  return static_cast<int32_t>((int64_t{tokens} + options_.block_size - 1) / options_.block_size);
}

int32_t KvCacheManager::BlocksToAdmit(CacheNamespace cache_namespace,
                                      std::span<const CacheUnit> units, int32_t max_tokens,
                                      SequenceId id) const {
  if (!options_.paged) return BlocksFor(max_tokens);
  const int32_t blocks = BlocksFor(static_cast<int32_t>(units.size()));
  const RadixPeek peek = tree_.Peek(NamespaceOf(id, cache_namespace), units, MaxMatchBlocks(units));
  if (peek.blocks < MinMatchBlocks()) return blocks;
  return blocks - peek.blocks + peek.evictable_blocks;
}

int32_t KvCacheManager::PeekMatch(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                                  SequenceId id) const {
  const RadixPeek peek = tree_.Peek(NamespaceOf(id, cache_namespace), units, MaxMatchBlocks(units));
  return peek.blocks < MinMatchBlocks() ? 0 : peek.blocks * options_.block_size;
}

// Evicts until `blocks` are free. REQUIRES: available_blocks() >= blocks.
void KvCacheManager::MakeFree(SequenceId id, int32_t committed, int32_t blocks) {
  int32_t evicted = 0;
  while (allocator_.free_count() < blocks) {
    const int32_t more = tree_.Evict(blocks - allocator_.free_count());
    CHECK_GT(more, 0) << "fewer blocks were evictable than counted";
    evicted += more;
  }
  if (evicted > 0) Trace(AllocationEvent::Kind::kEvict, id, committed, evicted);
}

void KvCacheManager::KeepWaterMarks(SequenceId id, int32_t committed) {
  const int32_t used = num_blocks() - allocator_.free_count();
  if (used <= options_.high_water * num_blocks()) return;
  const int32_t excess = used - static_cast<int32_t>(options_.low_water * num_blocks());
  const int32_t evicted = tree_.Evict(std::min(excess, tree_.evictable_blocks()));
  if (evicted > 0) Trace(AllocationEvent::Kind::kEvict, id, committed, evicted);
}

std::vector<std::string> KvCacheManager::SnapshotKvEvents() const {
  CHECK(publishes());
  KvEventBatcher all;
  tree_.PublishAll(all);
  std::vector<std::string> parts = all.Take();
  if (parts.empty()) parts.push_back(EncodeKvEvents({}));
  return parts;
}

KvCacheStats KvCacheManager::Stats() const {
  const RadixStats tree = tree_.Stats();
  KvCacheStats stats = totals_;
  stats.blocks = allocator_.Account();
  stats.evictable = tree.evictable_blocks;
  stats.evictions = tree.evictions;
  stats.evicted_blocks = tree.evicted_blocks;
  stats.evicted_tokens = tree.evicted_blocks * options_.block_size;
  stats.radix_nodes = tree.nodes;
  for (const auto& [id, kv] : sequences_) {
    stats.reserved_slots += int64_t{options_.block_size} * static_cast<int64_t>(kv.table.size());
    stats.committed_slots += kv.committed;
  }
  return stats;
}

void KvCacheManager::Trace(AllocationEvent::Kind kind, SequenceId id, int32_t tokens,
                           int32_t blocks) {
  if (!options_.record_trace) return;
  if (trace_.size() == 2 * kTraceEvents)
    trace_.erase(trace_.begin(), trace_.begin() + kTraceEvents);
  trace_.push_back({.time_us = clock_->NowUs(),
                    .kind = kind,
                    .sequence = id,
                    .tokens = tokens,
                    .blocks = blocks,
                    .free_after = allocator_.free_count()});
}

}  // namespace baton
