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

void PrefixCache::HoldForChunk(std::span<const BlockId> blocks) {
  in_chunk_.resize(allocator_.capacity());
  for (const BlockId block : blocks) {
    CHECK(allocator_.is_in_use(block)) << "block " << block << " is not in use";
    CHECK(!tree_.ContainsBlock(block)) << "block " << block << " is in the prefix tree";
    CHECK(!in_chunk_[block.value()]) << "block " << block << " has a chunk hold already";
    in_chunk_[block.value()] = true;
    ++chunk_blocks_;
    allocator_.AddHold(block, BlockHolder::kCache);
  }
}

void PrefixCache::ReleaseChunkHold(std::span<const BlockId> blocks) {
  // In reverse, so that a later allocation hands out the ids in their original order.
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    CHECK(HasChunkHold(*it)) << "block " << *it << " has no chunk hold";
    in_chunk_[it->value()] = false;
    --chunk_blocks_;
    allocator_.ReleaseHold(*it, BlockHolder::kCache);
  }
}

bool PrefixCache::HasChunkHold(BlockId block) const {
  return static_cast<size_t>(block.value()) < in_chunk_.size() && in_chunk_[block.value()];
}

void PrefixCache::ChunkStored(const Hash128& key, CacheTier tier) {
  if (!publishes_ || !chunks_[static_cast<size_t>(tier)].insert(key).second) return;
  events_.Stored(std::nullopt, key, tier);
}

void PrefixCache::ChunkRemoved(const Hash128& key, CacheTier tier) {
  if (chunks_[static_cast<size_t>(tier)].erase(key) > 0) events_.Removed(key, tier);
}

void PrefixCache::PublishChunks(KvEventBatcher& events) const {
  for (int tier = 0; tier < kCacheTiers; ++tier) {
    for (const Hash128& key : chunks_[static_cast<size_t>(tier)]) {
      events.Stored(std::nullopt, key, static_cast<CacheTier>(tier));
    }
  }
}

int32_t PrefixCache::ClearTree(std::optional<CacheNamespace> only) {
  if (only.has_value()) return tree_.Clear(*only);
  const int32_t freed = tree_.Clear();
  // Readers have forgotten the chunks too.
  PublishChunks(events_);
  return freed;
}

std::vector<std::string> PrefixCache::SnapshotEvents() const {
  KvEventBatcher all;
  tree_.PublishAll(all);
  PublishChunks(all);
  std::vector<std::string> parts = all.Take();
  if (parts.empty()) parts.push_back(EncodeKvEvents({}));
  return parts;
}

absl::Status PrefixCache::CheckConservation() const {
  RETURN_IF_ERROR(allocator_.CheckConservation());
  RETURN_IF_ERROR(tree_.CheckInvariants());
  int32_t chunk_blocks = 0;
  for (int32_t i = 0; i < allocator_.capacity(); ++i) {
    const BlockId block(i);
    const uint32_t caches = (tree_.ContainsBlock(block) ? 1 : 0) + (HasChunkHold(block) ? 1 : 0);
    if (allocator_.holds(block, BlockHolder::kCache) != caches || caches > 1) {
      return absl::InternalError(StrCat("block ", i, " has ",
                                        allocator_.holds(block, BlockHolder::kCache),
                                        " cache holds, but ", caches, " caches have it"));
    }
    chunk_blocks += HasChunkHold(block) ? 1 : 0;
  }
  if (chunk_blocks != chunk_blocks_) {
    return absl::InternalError(
        StrCat("counts ", chunk_blocks_, " chunk blocks, recount finds ", chunk_blocks));
  }
  return absl::OkStatus();
}

}  // namespace baton
