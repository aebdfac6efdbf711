// Prefixes that come from, or go to, another worker's cache.
#include <utility>

#include "cache/kv_cache_manager.h"
#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

absl::StatusOr<int32_t> KvCacheManager::BeginImport(SequenceId id, CacheNamespace cache_namespace,
                                                    std::span<const CacheUnit> units,
                                                    int32_t spare_blocks, int32_t priority) {
  CHECK(!sequences_.contains(id)) << "sequence " << id << " has begun already";
  CHECK_EQ(units.size() % options_.block_size, 0u);
  if (options_.kind != CacheKind::kRadix) {
    return absl::FailedPreconditionError("requests share no prefixes here");
  }
  const auto blocks = static_cast<int32_t>(units.size() / options_.block_size);
  const RadixPeek peek = tree_.Peek(cache_namespace, units, blocks);
  const int32_t missing = blocks - peek.blocks;
  const int64_t needed = int64_t{missing} + peek.evictable_blocks + spare_blocks;
  if (missing > 0 && needed > available_blocks()) {
    return absl::ResourceExhaustedError(StrCat("a prefix of ", blocks, " blocks lacks ", missing,
                                               "; with ", spare_blocks, " to spare that takes ",
                                               needed, " blocks, ", available_blocks(), " of ",
                                               num_blocks(), " can be had"));
  }
  SequenceKv kv;
  kv.cache_namespace = cache_namespace;
  Adopt(kv, tree_.Match(cache_namespace, units, blocks, /*min_blocks=*/0, priority));
  const int32_t matched = kv.matched;
  sequences_.emplace(id, std::move(kv));
  Trace(AllocationEvent::Kind::kMatch, id, matched, peek.blocks);
  const absl::Status reserved = Reserve(id, static_cast<int32_t>(units.size()));
  CHECK(reserved.ok()) << reserved;
  return matched;
}

std::vector<BlockId> KvCacheManager::HoldPrefix(CacheNamespace cache_namespace,
                                                std::span<const CacheUnit> units,
                                                int32_t first_block) {
  CHECK_GE(first_block, 0);
  if (options_.kind != CacheKind::kRadix) return {};
  const auto blocks = static_cast<int32_t>(units.size() / options_.block_size);
  // Another worker's wish does not make it more important here.
  const RadixMatch match = tree_.Match(cache_namespace, units, blocks, /*min_blocks=*/0, INT32_MIN);
  if (first_block >= static_cast<int32_t>(match.blocks.size())) return {};
  std::vector<BlockId> held(match.blocks.begin() + first_block, match.blocks.end());
  HoldForTransfer(held);
  return held;
}

}  // namespace baton
