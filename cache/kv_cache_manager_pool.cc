// The pool behind a KvCacheManager: holds of transfers and steps, room, eviction, resizing,
// figures.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "cache/kv_cache_manager.h"
#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

// ---- transfers and steps
// -------------------------------------------------------------------------

void KvCacheManager::Pin(std::span<const BlockId> blocks, int32_t group, BlockHolder holder) {
  if (group > 0) {
    WindowCache& window = windows_[group - 1]->cache();
    for (const BlockId block : blocks) window.AddHold(block, holder);
    return;
  }
  for (const BlockId block : blocks) {
    holder == BlockHolder::kStep ? allocator_.Claim(block, holder)
                                 : allocator_.AddHold(block, holder);
    if (allocator_.pins(block) == 1) tree_.PinBlock(block);
  }
}

void KvCacheManager::Unpin(std::span<const BlockId> blocks, int32_t group, BlockHolder holder) {
  if (group > 0) {
    WindowCache& window = windows_[group - 1]->cache();
    for (const BlockId block : blocks) window.ReleaseHold(block, holder);
    return;
  }
  for (const BlockId block : blocks) {
    allocator_.ReleaseHold(block, holder);
    if (allocator_.pins(block) == 0) tree_.UnpinBlock(block);
  }
  resize_.Retire();
}

void KvCacheManager::HoldForTransfer(std::span<const BlockId> blocks, int32_t group) {
  Pin(blocks, group, BlockHolder::kTransfer);
}

void KvCacheManager::ReleaseTransferHold(std::span<const BlockId> blocks, int32_t group) {
  Unpin(blocks, group, BlockHolder::kTransfer);
}

void KvCacheManager::HoldForStep(std::span<const BlockId> blocks, int32_t group) {
  Pin(blocks, group, BlockHolder::kStep);
}

void KvCacheManager::ReleaseStepHold(std::span<const BlockId> blocks, int32_t group) {
  Unpin(blocks, group, BlockHolder::kStep);
}

// ---- the pool -----------------------------------------------------------------------------------

int32_t KvCacheManager::available_blocks() const {
  return std::max(0, allocator_.free_count() + tree_.evictable_blocks() - allocator_.retiring());
}

absl::Status KvCacheManager::Resize(int32_t blocks, int32_t group) {
  if (blocks < 1 || blocks > max_blocks(group)) {
    return absl::InvalidArgumentError(
        StrCat("a pool of ", blocks, " blocks; [1, ", max_blocks(group), "] is allowed"));
  }
  if (group > 0) {
    windows_[group - 1]->cache().Resize(blocks);
    return absl::OkStatus();
  }
  absl::flat_hash_set<SequenceId> live;
  for (const auto& [id, kv] : sequences_) live.insert(id);
  resize_.Resize(blocks, std::move(live));
  return absl::OkStatus();
}

BlockCounts KvCacheManager::AvailableBlocks() const {
  BlockCounts available(available_blocks());
  for (int32_t group = 1; group < groups(); ++group) {
    available[group] = std::max(0, windows_[group - 1]->available());
  }
  return available;
}

BlockCounts KvCacheManager::PoolBlocks() const {
  BlockCounts blocks;
  for (int32_t group = 0; group < groups(); ++group) blocks[group] = num_blocks(group);
  return blocks;
}

BlockCounts KvCacheManager::OfEveryGroup(int32_t count) const {
  BlockCounts blocks;
  for (int32_t group = 0; group < groups(); ++group) blocks[group] = count;
  return blocks;
}

int32_t KvCacheManager::blocks_in_transfer() const {
  int32_t blocks = allocator_.in_transfer();
  for (const auto& window : windows_) blocks += window->cache().blocks().in_transfer();
  return blocks;
}

int32_t KvCacheManager::step_blocks() const {
  int32_t blocks = allocator_.Account().step;
  for (const auto& window : windows_) blocks += window->cache().blocks().Account().step;
  return blocks;
}

BlockCounts KvCacheManager::BlocksToHold(int32_t tokens) const {
  BlockCounts blocks(BlocksFor(tokens));
  for (int32_t group = 1; group < groups(); ++group) {
    blocks[group] = options_.paged ? windows_[group - 1]->ChargeToAdmit(0, tokens) : blocks.full();
  }
  return blocks;
}

BlockCounts KvCacheManager::BlocksToAdmit(CacheNamespace cache_namespace,
                                          std::span<const CacheUnit> units, int32_t max_tokens,
                                          SequenceId id) const {
  if (!options_.paged) return BlocksToHold(max_tokens);
  const auto tokens = static_cast<int32_t>(units.size());
  RadixPeek peek = tree_.Peek(NamespaceOf(id, cache_namespace), units, MaxMatchBlocks(units));
  if (peek.blocks < MinMatchBlocks()) peek = {};
  BlockCounts blocks(BlocksFor(tokens) - peek.blocks + peek.evictable_blocks);
  for (int32_t group = 1; group < groups(); ++group) {
    blocks[group] = windows_[group - 1]->ChargeToAdmit(peek.blocks * options_.block_size, tokens);
  }
  return blocks;
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
  for (const auto& window : windows_) {
    WindowCache& cache = window->cache();
    const int32_t limit = cache.blocks().limit();
    const int32_t used = limit - cache.blocks().free_count();
    if (used > options_.high_water * limit) {
      cache.Evict(used - static_cast<int32_t>(options_.low_water * limit));
    }
  }
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
  for (const auto& window : windows_) {
    stats.windows.push_back({.blocks = window->cache().blocks().Account(),
                             .evictable = window->cache().evictable(),
                             .charged = window->charged(),
                             .evicted_blocks = window->cache().evicted_blocks()});
  }
  return stats;
}

void KvCacheManager::Trace(AllocationEvent::Kind kind, SequenceId id, int32_t tokens,
                           int32_t blocks) {
  if (!trace_.records()) return;
  trace_.Add({.time_us = 0,
              .kind = kind,
              .sequence = id,
              .tokens = tokens,
              .blocks = blocks,
              .free_after = allocator_.free_count()});
}

}  // namespace baton
