// Pools of KvCacheManager: holds of transfers and steps, resizing, watermarks, statistics.
#include <algorithm>

#include "cache/kv_cache_manager.h"
#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

// ---- transfers and steps ------------------------------------------------------------------------

void KvCacheManager::Pin(std::span<const BlockId> blocks, int32_t group, BlockHolder holder) {
  if (group == 0) return cache_.Pin(blocks, holder);
  for (const BlockId block : blocks) windows_.At(group).cache().AddHold(block, holder);
}

void KvCacheManager::Unpin(std::span<const BlockId> blocks, int32_t group, BlockHolder holder) {
  if (group == 0) return cache_.Unpin(blocks, holder);
  for (const BlockId block : blocks) windows_.At(group).cache().ReleaseHold(block, holder);
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

// ---- pools --------------------------------------------------------------------------------------

absl::Status KvCacheManager::Resize(int32_t blocks, int32_t group) {
  if (blocks < 1 || blocks > max_blocks(group)) {
    return absl::InvalidArgumentError(StrCat("the pool cannot have ", blocks, " blocks; [1, ",
                                             max_blocks(group), "] are allowed"));
  }
  if (group > 0) {
    windows_.At(group).cache().Resize(blocks);
  } else {
    cache_.Resize(blocks, tables_.sequences());
  }
  return absl::OkStatus();
}

BlockCounts KvCacheManager::AvailableBlocks() const {
  BlockCounts available(available_blocks());
  for (int32_t group = 1; group < groups(); ++group) {
    available[group] = std::max(0, windows_.At(group).available());
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
  int32_t blocks = cache_.blocks().in_transfer();
  for (const auto& window : windows_) blocks += window->cache().blocks().in_transfer();
  return blocks;
}

int32_t KvCacheManager::step_blocks() const {
  int32_t blocks = cache_.blocks().Account().step;
  for (const auto& window : windows_) blocks += window->cache().blocks().Account().step;
  return blocks;
}

void KvCacheManager::KeepWaterMarks(SequenceId id, int32_t committed) {
  windows_.KeepWaterMarks(marks_);
  const int32_t excess = marks_.Excess(num_blocks() - cache_.blocks().free_count(), num_blocks());
  if (excess <= 0) return;
  const int32_t evicted = cache_.tree().EvictOverShares(excess);
  if (evicted > 0) Trace(AllocationEvent::Kind::kEvict, id, committed, evicted);
}

// ---- statistics ---------------------------------------------------------------------------------

std::vector<std::string> KvCacheManager::SnapshotKvEvents() const {
  CHECK(publishes());
  return cache_.SnapshotEvents();
}

KvCacheStats KvCacheManager::Stats() const {
  const RadixStats tree = cache_.tree().Stats();
  KvCacheStats stats = totals_;
  stats.blocks = cache_.blocks().Account();
  stats.chunk_blocks = cache_.chunk_blocks();
  stats.evictable = tree.evictable_blocks;
  stats.evictions = tree.evictions;
  stats.evicted_blocks = tree.evicted_blocks;
  stats.evicted_tokens = tree.evicted_blocks * options_.block_size;
  stats.radix_nodes = tree.nodes;
  const FullTables::Slots slots = tables_.CountSlots();
  stats.reserved_slots = slots.reserved;
  stats.committed_slots = slots.committed;
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
              .free_after = cache_.blocks().free_count()});
}

}  // namespace baton
