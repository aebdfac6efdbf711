// Imports prefixes from another worker's cache, and holds prefixes for an export to it.
#include <utility>

#include "cache/kv_cache_manager.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::StatusOr<int32_t> KvCacheManager::BeginImport(SequenceId id, CacheNamespace cache_namespace,
                                                    std::span<const CacheUnit> units,
                                                    int32_t spare_blocks, int32_t priority,
                                                    const CacheOwner& owner) {
  CHECK(!Contains(id)) << "sequence " << id << " already exists";
  CHECK_EQ(units.size() % options_.block_size, 0u);
  if (!rules_.shares) {
    return absl::FailedPreconditionError(
        "requests share no prefixes here; that needs --cache-kind radix");
  }
  const auto blocks = static_cast<int32_t>(units.size() / options_.block_size);
  const RadixPeek peek = cache_.tree().Peek(cache_namespace, units, blocks);
  const int32_t missing = blocks - peek.blocks;
  const int64_t needed = int64_t{missing} + peek.evictable_blocks + spare_blocks;
  if (missing > 0 && needed > available_blocks()) {
    return absl::ResourceExhaustedError(StrCat("a prefix of ", blocks, " blocks lacks ", missing,
                                               "; with ", spare_blocks, " spare blocks that takes ",
                                               needed, " blocks, ", available_blocks(), " of ",
                                               num_blocks(), " are available"));
  }
  // Checked even if nothing is missing, because a window's cached blocks may be charged to
  // sequences.
  RETURN_IF_ERROR(windows_.CheckRoomToImport(peek.blocks * options_.block_size,
                                             static_cast<int32_t>(units.size()),
                                             missing > 0 ? spare_blocks : 0));
  tables_.Begin(
      id, cache_.tree().Match(cache_namespace, units, blocks, /*min_blocks=*/0, priority, owner));
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
  // Uses the lowest priority: another worker's request does not raise priorities here.
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
    // A transfer's holds can make this many blocks unavailable to sequences.
    if (static_cast<int32_t>(part.blocks.size()) > window->available()) return {};
  }
  HoldForTransfer(held.blocks);
  for (int32_t group = 1; group < groups(); ++group) {
    HoldForTransfer(held.windows[group - 1].blocks, group);
  }
  return held;
}

}  // namespace baton
