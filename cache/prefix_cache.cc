#include "cache/prefix_cache.h"

#include "cache/index/kv_event.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

int32_t PrefixCache::MakeFree(int32_t count) {
  int32_t evicted = 0;
  while (allocator_.free_count() < count) {
    const int32_t more = tree_.Evict(count - allocator_.free_count());
    CHECK_GT(more, 0) << "nothing left to evict, but the tree counts evictable blocks";
    evicted += more;
  }
  return evicted;
}

void PrefixCache::Pin(std::span<const BlockId> blocks, BlockHolder holder) {
  for (const BlockId block : blocks) {
    holder == BlockHolder::kStep ? allocator_.Claim(block, holder)
                                 : allocator_.AddHold(block, holder);
    if (allocator_.pins(block) == 1) tree_.PinBlock(block);
  }
}

void PrefixCache::Unpin(std::span<const BlockId> blocks, BlockHolder holder) {
  for (const BlockId block : blocks) {
    allocator_.ReleaseHold(block, holder);
    if (allocator_.pins(block) == 0) tree_.UnpinBlock(block);
  }
  resize_.Retire();
}

std::vector<std::string> PrefixCache::SnapshotEvents() const {
  KvEventBatcher all;
  tree_.PublishAll(all);
  std::vector<std::string> parts = all.Take();
  if (parts.empty()) parts.push_back(EncodeKvEvents({}));
  return parts;
}

absl::Status PrefixCache::CheckConservation() const {
  RETURN_IF_ERROR(allocator_.CheckConservation());
  RETURN_IF_ERROR(tree_.CheckInvariants());
  for (int32_t i = 0; i < allocator_.capacity(); ++i) {
    const BlockId block(i);
    if (allocator_.holds(block, BlockHolder::kCache) != (tree_.ContainsBlock(block) ? 1 : 0)) {
      return absl::InternalError(StrCat("block ", i, ": its radix hold does not match the tree"));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
