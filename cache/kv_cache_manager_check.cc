// Checks of KvCacheManager: compares pools, tree and tables with each other, and holds with the
// claims of their holders.
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::Status KvCacheManager::CheckConservation() const {
  RETURN_IF_ERROR(cache_.CheckConservation());
  RETURN_IF_ERROR(tables_.CheckConservation(rules_.shares));
  for (const SequenceId id : tables_.sequences()) {
    RETURN_IF_ERROR(
        windows_.CheckSequence(id, committed(id), tables_.Table(id), tables_.shared_blocks(id)));
  }
  return windows_.CheckConservation();
}

absl::Status KvCacheManager::CheckTransferHolds(std::span<const BlockId> held,
                                                int32_t group) const {
  return CheckHolds(held, group, BlockHolder::kTransfer, "transfer");
}

absl::Status KvCacheManager::CheckStepHolds(std::span<const BlockId> held, int32_t group) const {
  return CheckHolds(held, group, BlockHolder::kStep, "step");
}

absl::Status KvCacheManager::CheckChunkHolds(std::span<const BlockId> held) const {
  std::vector<bool> claimed(max_blocks());
  for (const BlockId block : held) {
    if (claimed[block.value()]) {
      return absl::InternalError(StrCat("two chunks claim block ", block.value()));
    }
    claimed[block.value()] = true;
    if (!cache_.HasChunkHold(block)) {
      return absl::InternalError(
          StrCat("a chunk claims block ", block.value(), ", which has no chunk hold"));
    }
  }
  if (static_cast<int32_t>(held.size()) == cache_.chunk_blocks()) return absl::OkStatus();
  return absl::InternalError(StrCat(cache_.chunk_blocks(), " blocks have chunk holds, but chunks ",
                                    "claim ", held.size()));
}

absl::Status KvCacheManager::CheckHolds(std::span<const BlockId> held, int32_t group,
                                        BlockHolder holder, std::string_view holders) const {
  const BlockAllocator& pool = Blocks(group);
  std::vector<uint32_t> owned(pool.capacity());
  for (const BlockId block : held) ++owned[block.value()];
  for (int32_t i = 0; i < pool.capacity(); ++i) {
    const uint32_t holds = pool.holds(BlockId(i), holder);
    if (holds == owned[i]) continue;
    return absl::InternalError(StrCat("block ", i, " has ", holds, " ", holders, " holds, but ",
                                      holders, "s claim ", owned[i]));
  }
  return absl::OkStatus();
}

}  // namespace baton
