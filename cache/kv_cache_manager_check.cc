// KvCacheManager::CheckConservation: allocator, tree and tables recounted against each other.
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_cache_manager.h"
#include "common/str_cat.h"

namespace baton {

absl::Status KvCacheManager::CheckSequence(SequenceId id, const SequenceKv& kv) const {
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("sequence ", id.value(), ": ", what));
  };
  if (kv.committed > capacity(id)) return broken("more committed than reserved");
  if (shared_tokens(id) > kv.committed) return broken("shares what is not committed");
  if (caches() && kv.private_units.size() != kv.committed - shared_tokens(id)) {
    return broken("committed units differ");
  }
  for (int32_t i = 0; i < static_cast<int32_t>(kv.table.size()); ++i) {
    if (tree_.ContainsBlock(kv.table[i]) != (i < kv.shared_blocks)) {
      return broken(StrCat("block ", i, " is on the wrong side of the shared prefix"));
    }
    // Forks share what they committed before: full blocks through the tree if there is one.
    const int32_t first_alone = BlocksFor(kv.committed);
    const int32_t first_shared =
        options_.kind == CacheKind::kRadix ? kv.committed / options_.block_size : kv.shared_blocks;
    const bool may_share = i < kv.shared_blocks || (i >= first_shared && i < first_alone);
    if (!may_share && allocator_.holds(kv.table[i], BlockHolder::kSequence) != 1) {
      return broken(StrCat("private block ", i, " is another sequence's too"));
    }
  }
  return absl::OkStatus();
}

absl::Status KvCacheManager::CheckConservation() const {
  if (absl::Status status = allocator_.CheckConservation(); !status.ok()) return status;
  if (absl::Status status = tree_.CheckInvariants(); !status.ok()) return status;
  std::vector<uint32_t> tables(allocator_.capacity());
  for (const auto& [id, kv] : sequences_) {
    if (absl::Status status = CheckSequence(id, kv); !status.ok()) return status;
    for (const BlockId block : kv.table) ++tables[block.value()];
    for (const auto& window : windows_) {
      absl::Status status = window->CheckSequence(id, kv.committed, kv.table, kv.shared_blocks);
      if (!status.ok()) return status;
    }
  }
  for (const auto& window : windows_) {
    if (absl::Status status = window->CheckConservation(); !status.ok()) return status;
  }
  for (int32_t i = 0; i < allocator_.capacity(); ++i) {
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

absl::Status KvCacheManager::CheckTransferHolds(std::span<const BlockId> held,
                                                int32_t group) const {
  return CheckHolds(held, group, BlockHolder::kTransfer, "transfer");
}

absl::Status KvCacheManager::CheckStepHolds(std::span<const BlockId> held, int32_t group) const {
  return CheckHolds(held, group, BlockHolder::kStep, "step");
}

absl::Status KvCacheManager::CheckHolds(std::span<const BlockId> held, int32_t group,
                                        BlockHolder holder, std::string_view holders) const {
  const BlockAllocator& pool = Blocks(group);
  std::vector<uint32_t> owned(pool.capacity());
  for (const BlockId block : held) ++owned[block.value()];
  for (int32_t i = 0; i < pool.capacity(); ++i) {
    const uint32_t holds = pool.holds(BlockId(i), holder);
    if (holds == owned[i]) continue;
    return absl::InternalError(
        StrCat("block ", i, " has ", holds, " ", holders, " holds, ", holders, "s own ", owned[i]));
  }
  return absl::OkStatus();
}

}  // namespace baton
