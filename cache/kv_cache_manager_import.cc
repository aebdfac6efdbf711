// Prefixes that come from, or go to, another worker's cache.
#include <utility>

#include "cache/kv_cache_manager.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::StatusOr<int32_t> KvCacheManager::BeginImport(SequenceId id, CacheNamespace cache_namespace,
                                                    std::span<const CacheUnit> units,
                                                    int32_t spare_blocks, int32_t priority) {
  CHECK(!Contains(id)) << "sequence " << id << " has begun already";
  CHECK_EQ(units.size() % options_.block_size, 0u);
  if (!rules_.shares) {
    return absl::FailedPreconditionError("requests share no prefixes here");
  }
  const auto blocks = static_cast<int32_t>(units.size() / options_.block_size);
  const RadixPeek peek = cache_.tree().Peek(cache_namespace, units, blocks);
  const int32_t missing = blocks - peek.blocks;
  const int64_t needed = int64_t{missing} + peek.evictable_blocks + spare_blocks;
  if (missing > 0 && needed > available_blocks()) {
    return absl::ResourceExhaustedError(StrCat("a prefix of ", blocks, " blocks lacks ", missing,
                                               "; with ", spare_blocks, " to spare that takes ",
                                               needed, " blocks, ", available_blocks(), " of ",
                                               num_blocks(), " can be had"));
  }
  // A window's cached blocks may be promised to other sequences, so it is asked in any case.
  RETURN_IF_ERROR(windows_.CheckRoomToImport(peek.blocks * options_.block_size,
                                             static_cast<int32_t>(units.size()),
                                             missing > 0 ? spare_blocks : 0));
  tables_.Begin(id,
                cache_.tree().Match(cache_namespace, units, blocks, /*min_blocks=*/0, priority));
  windows_.Begin(id, tables_.Table(id), priority);
  const int32_t matched = tables_.matched(id);
  Trace(AllocationEvent::Kind::kMatch, id, matched, peek.blocks);
  const absl::Status reserved = ReserveForImport(id, static_cast<int32_t>(units.size()));
  CHECK(reserved.ok()) << reserved;
  return matched;
}

HeldBlocks KvCacheManager::HoldPrefix(CacheNamespace cache_namespace,
                                      std::span<const CacheUnit> units, int32_t first_block) {
  CHECK_GE(first_block, 0);
  if (!rules_.shares) return {};
  const auto blocks = static_cast<int32_t>(units.size() / options_.block_size);
  // Another worker's wish does not make it more important here.
  const RadixMatch match =
      cache_.tree().Match(cache_namespace, units, blocks, /*min_blocks=*/0, INT32_MIN);
  const auto boundary = static_cast<int32_t>(match.blocks.size());
  if (first_block >= boundary) return {};
  HeldBlocks held;
  held.blocks.assign(match.blocks.begin() + first_block, match.blocks.end());
  for (const auto& window : windows_) {
    const WindowCache& cache = window->cache();
    HeldBlocks::Window& part = held.windows.emplace_back();
    part.first = std::max(first_block, boundary - cache.whole_blocks());
    for (int32_t i = part.first; i < boundary; ++i) {
      part.blocks.push_back(cache.At(match.blocks[i]));
    }
    // A transfer's hold may make as many unavailable.
    if (static_cast<int32_t>(part.blocks.size()) > window->available()) return {};
  }
  HoldForTransfer(held.blocks);
  for (int32_t group = 1; group < groups(); ++group) {
    HoldForTransfer(held.windows[group - 1].blocks, group);
  }
  return held;
}

}  // namespace baton
