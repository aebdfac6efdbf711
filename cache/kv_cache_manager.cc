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
      allocator_(options.num_blocks),
      tree_(options.block_size, &allocator_) {
  CHECK_GE(options.num_blocks, 1);
  CHECK(options.block_size >= kMinBlockSize && options.block_size <= kMaxBlockSize &&
        std::has_single_bit(static_cast<uint32_t>(options.block_size)))
      << "block_size " << options.block_size;
  CHECK_GE(options.min_prefix_tokens, 0);
  CHECK(options.paged || !options.prefix_cache) << "contiguous mode excludes the prefix cache";
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

int32_t KvCacheManager::MaxMatchBlocks(std::span<const CacheUnit> units) const {
  if (!options_.prefix_cache || units.empty()) return 0;
  return static_cast<int32_t>((units.size() - 1) / options_.block_size);
}

absl::Status KvCacheManager::BeginRun(SequenceKv& kv, int32_t max_tokens) {
  const int32_t blocks = BlocksFor(max_tokens);
  if (allocator_.AllocateRun(blocks, BlockHolder::kSequence, kv.table)) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("no run of ", blocks, " free blocks for ", max_tokens,
                                             " tokens; ", allocator_.free_count(), " of ",
                                             allocator_.total(), " blocks are free"));
}

void KvCacheManager::BeginMatch(SequenceKv& kv, std::span<const CacheUnit> units) {
  RadixMatch match =
      tree_.Match(kv.cache_namespace, units, MaxMatchBlocks(units), MinMatchBlocks());
  for (const BlockId block : match.blocks) allocator_.AddHold(block, BlockHolder::kSequence);
  kv.lock = std::move(match.lock);
  kv.table = std::move(match.blocks);
  kv.shared_blocks = static_cast<int32_t>(kv.table.size());
  kv.matched = kv.committed = kv.shared_blocks * options_.block_size;
}

absl::StatusOr<int32_t> KvCacheManager::Begin(SequenceId id, CacheNamespace cache_namespace,
                                              std::span<const CacheUnit> units,
                                              int32_t max_tokens) {
  CHECK(!sequences_.contains(id)) << "sequence " << id << " has begun already";
  CHECK_GE(max_tokens, static_cast<int64_t>(units.size()));
  SequenceKv kv;
  kv.cache_namespace = cache_namespace;
  if (!options_.paged) {
    if (absl::Status status = BeginRun(kv, max_tokens); !status.ok()) return status;
  } else if (options_.prefix_cache) {
    BeginMatch(kv, units);
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
  const int32_t missing = BlocksFor(tokens) - static_cast<int32_t>(kv.table.size());
  if (missing <= 0) return absl::OkStatus();
  if (!options_.paged) {
    return absl::ResourceExhaustedError(StrCat(tokens, " tokens exceed the contiguous run of ",
                                               kv.table.size() * options_.block_size));
  }
  if (missing > available_blocks()) {
    return absl::ResourceExhaustedError(StrCat(missing, " more blocks needed for ", tokens,
                                               " tokens, ", available_blocks(), " of ",
                                               allocator_.total(), " can be had"));
  }
  Evict(id, missing - allocator_.free_count());
  CHECK(allocator_.Allocate(missing, BlockHolder::kSequence, kv.table));
  Trace(AllocationEvent::Kind::kReserve, id, kv.committed, missing);
  return absl::OkStatus();
}

void KvCacheManager::Commit(SequenceId id, std::span<const CacheUnit> units) {
  SequenceKv& kv = Get(id);
  const int64_t committed = kv.committed + static_cast<int64_t>(units.size());
  CHECK_LE(committed, capacity(id)) << "sequence " << id << " commits more than it reserved";
  kv.committed = static_cast<int32_t>(committed);
  if (options_.prefix_cache) {
    kv.private_units.insert(kv.private_units.end(), units.begin(), units.end());
  }
}

void KvCacheManager::InsertCommitted(SequenceId id) {
  if (!options_.prefix_cache) return;
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
  if (options_.prefix_cache) kv.private_units.resize(kv.committed - shared_tokens(id));
  const size_t kept = BlocksFor(tokens);
  if (!options_.paged || kept >= kv.table.size()) return;
  const auto dropped = std::span(kv.table).subspan(kept);
  allocator_.ReleaseHolds(dropped, BlockHolder::kSequence);
  Trace(AllocationEvent::Kind::kRelease, id, kv.committed, static_cast<int32_t>(dropped.size()));
  kv.table.resize(kept);
}

void KvCacheManager::Release(SequenceId id, bool keep) {
  if (keep) InsertCommitted(id);
  SequenceKv kv = std::move(Get(id));
  sequences_.erase(id);
  allocator_.ReleaseHolds(kv.table, BlockHolder::kSequence);
  kv.lock.Drop();
  Trace(AllocationEvent::Kind::kRelease, id, kv.committed, static_cast<int32_t>(kv.table.size()));
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

void KvCacheManager::HoldForTransfer(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    allocator_.AddHold(block, BlockHolder::kTransfer);
    if (allocator_.holds(block, BlockHolder::kTransfer) == 1) tree_.PinBlock(block);
  }
}

void KvCacheManager::ReleaseTransferHold(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    allocator_.ReleaseHold(block, BlockHolder::kTransfer);
    if (allocator_.holds(block, BlockHolder::kTransfer) == 0) tree_.UnpinBlock(block);
  }
}

// ---- the pool -----------------------------------------------------------------------------------

int32_t KvCacheManager::available_blocks() const {
  return allocator_.free_count() + tree_.evictable_blocks();
}

int32_t KvCacheManager::blocks_in_transfer() const { return allocator_.Account().in_transfer; }

int32_t KvCacheManager::BlocksFor(int32_t tokens) const {
  return static_cast<int32_t>((int64_t{tokens} + options_.block_size - 1) / options_.block_size);
}

int32_t KvCacheManager::BlocksToAdmit(CacheNamespace cache_namespace,
                                      std::span<const CacheUnit> units, int32_t max_tokens) const {
  if (!options_.paged) return BlocksFor(max_tokens);
  const int32_t blocks = BlocksFor(static_cast<int32_t>(units.size()));
  const RadixPeek peek = tree_.Peek(cache_namespace, units, MaxMatchBlocks(units));
  if (peek.blocks < MinMatchBlocks()) return blocks;
  return blocks - peek.blocks + peek.evictable_blocks;
}

int32_t KvCacheManager::PeekMatch(CacheNamespace cache_namespace,
                                  std::span<const CacheUnit> units) const {
  const RadixPeek peek = tree_.Peek(cache_namespace, units, MaxMatchBlocks(units));
  return peek.blocks < MinMatchBlocks() ? 0 : peek.blocks * options_.block_size;
}

void KvCacheManager::Evict(SequenceId id, int32_t blocks) {
  if (blocks <= 0) return;
  CHECK_EQ(tree_.Evict(blocks), blocks) << "fewer blocks were evictable than counted";
  Trace(AllocationEvent::Kind::kEvict, id, Get(id).committed, blocks);
}

int32_t KvCacheManager::ClearCache() { return tree_.Evict(tree_.evictable_blocks()); }

KvCacheStats KvCacheManager::Stats() const {
  const RadixStats tree = tree_.Stats();
  KvCacheStats stats = totals_;
  stats.blocks = allocator_.Account();
  stats.evictable = tree.evictable_blocks;
  stats.evicted_blocks = tree.evicted_blocks;
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

absl::Status KvCacheManager::CheckSequence(SequenceId id, const SequenceKv& kv) const {
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("sequence ", id.value(), ": ", what));
  };
  if (kv.committed > capacity(id)) return broken("more committed than reserved");
  if (shared_tokens(id) > kv.committed) return broken("shares what is not committed");
  if (options_.prefix_cache && kv.private_units.size() != kv.committed - shared_tokens(id)) {
    return broken("committed units differ");
  }
  for (int32_t i = 0; i < static_cast<int32_t>(kv.table.size()); ++i) {
    if (tree_.ContainsBlock(kv.table[i]) != (i < kv.shared_blocks)) {
      return broken(StrCat("block ", i, " is on the wrong side of the shared prefix"));
    }
    if (i >= kv.shared_blocks && allocator_.holds(kv.table[i], BlockHolder::kSequence) != 1) {
      return broken(StrCat("private block ", i, " is another sequence's too"));
    }
  }
  return absl::OkStatus();
}

absl::Status KvCacheManager::CheckConservation() const {
  if (absl::Status status = allocator_.CheckConservation(); !status.ok()) return status;
  if (absl::Status status = tree_.CheckInvariants(); !status.ok()) return status;
  std::vector<uint32_t> tables(allocator_.total());
  for (const auto& [id, kv] : sequences_) {
    if (absl::Status status = CheckSequence(id, kv); !status.ok()) return status;
    for (const BlockId block : kv.table) ++tables[block.value()];
  }
  for (int32_t i = 0; i < allocator_.total(); ++i) {
    const BlockId block(i);
    if (allocator_.holds(block, BlockHolder::kSequence) != tables[i]) {
      return absl::InternalError(StrCat("block ", i, " is in ", tables[i], " tables but has ",
                                        allocator_.holds(block, BlockHolder::kSequence),
                                        " sequence holds"));
    }
    if (allocator_.holds(block, BlockHolder::kRadixNode) != (tree_.ContainsBlock(block) ? 1 : 0)) {
      return absl::InternalError(StrCat("block ", i, ": radix hold and tree differ"));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
