// Parts of chunked prompts in KvCacheManager: sequences that share no prefix, locks on whole cached
// prefixes, and the holds of the chunk cache.
#include <algorithm>
#include <utility>

#include "cache/kv_cache_manager.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace baton {

absl::Status KvCacheManager::BeginPart(SequenceId id, int32_t tokens) {
  CHECK(!Contains(id)) << "sequence " << id << " already exists";
  if (options_.paged) {
    tables_.Begin(id, RadixMatch());
    windows_.Begin(id, tables_.Table(id), /*priority=*/0);
  } else {
    RETURN_IF_ERROR(BeginRuns(id, tokens));
  }
  Trace(AllocationEvent::Kind::kReserve, id, 0, static_cast<int32_t>(tables_.Table(id).size()));
  return absl::OkStatus();
}

RadixPeek KvCacheManager::PeekBlocks(CacheNamespace cache_namespace,
                                     std::span<const CacheUnit> units) const {
  if (!rules_.shares) return {};
  return cache_.tree().Peek(cache_namespace, units,
                            static_cast<int32_t>(units.size() / options_.block_size));
}

bool KvCacheManager::BeginCached(SequenceId id, CacheNamespace cache_namespace,
                                 std::span<const CacheUnit> units, int32_t priority) {
  CHECK(!Contains(id)) << "sequence " << id << " already exists";
  CHECK_EQ(units.size() % options_.block_size, 0u);
  CHECK(windows_.empty()) << "parts of chunked prompts have no windows";
  const auto blocks = static_cast<int32_t>(units.size() / options_.block_size);
  if (!rules_.shares || PeekBlocks(cache_namespace, units).blocks < blocks) return false;
  tables_.Begin(id,
                cache_.tree().Match(cache_namespace, units, blocks, /*min_blocks=*/0, priority));
  CHECK_EQ(tables_.matched(id), static_cast<int64_t>(units.size()));
  Trace(AllocationEvent::Kind::kMatch, id, tables_.matched(id), blocks);
  return true;
}

void KvCacheManager::InsertIfNew(SequenceId id) {
  if (rules_.shares && !tables_.NextIsInTree(id)) InsertCommitted(id);
}

bool KvCacheManager::AnyInStep(std::span<const BlockId> blocks) const {
  return std::any_of(blocks.begin(), blocks.end(), [this](BlockId block) {
    return cache_.blocks().holds(block, BlockHolder::kStep) > 0;
  });
}

void KvCacheManager::HoldForChunk(std::span<const BlockId> blocks) { cache_.HoldForChunk(blocks); }

void KvCacheManager::ReleaseChunkHold(std::span<const BlockId> blocks) {
  cache_.ReleaseChunkHold(blocks);
}

}  // namespace baton
