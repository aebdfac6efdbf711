#include "cache/window_cache.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

WindowCache::WindowCache(const WindowPoolOptions& options, int32_t block_size, int32_t full_blocks,
                         EvictionPolicy policy, const CacheOwners* owners)
    : window_(options.window),
      block_size_(block_size),
      whole_blocks_(static_cast<int32_t>((int64_t{options.window} + block_size - 2) / block_size)),
      policy_(policy),
      allocator_(options.num_blocks, std::max(options.num_blocks, options.max_blocks)),
      window_of_(full_blocks, kNoBlock),
      full_of_(allocator_.capacity(), kNoBlock),
      use_(allocator_.capacity()),
      owner_(allocator_.capacity(), kCommonSlot),
      eviction_queue_(owners) {
  CHECK_GE(options.window, 1);
  CHECK_GE(options.num_blocks, 1);
  CHECK(options.max_blocks == 0 || options.max_blocks >= options.num_blocks)
      << options.max_blocks << " as max_blocks of a window, but " << options.num_blocks
      << " as num_blocks";
}

WindowCache::~WindowCache() { Drop(full_of_); }

int32_t WindowCache::LongestWhole(std::span<const BlockId> path) const {
  auto boundary = static_cast<int32_t>(path.size());
  int32_t whole = 0;  // window blocks present just before the boundary
  for (int32_t i = boundary - 1; i >= 0 && whole < whole_blocks_; --i) {
    if (At(path[i]) == kNoBlock) {
      boundary = i;
      whole = 0;
    } else {
      ++whole;
    }
  }
  return boundary;
}

void WindowCache::Put(BlockId full, BlockId block, int32_t priority, OwnerSlot owner) {
  CHECK_EQ(At(full), kNoBlock) << "full block " << full << " already has a window block";
  CHECK(!IsCached(block) && !IsUnheld(block)) << "cached or without holds: window block " << block;
  if (block.value() >= allocator_.limit()) return;
  window_of_[full.value()] = block;
  full_of_[block.value()] = full;
  use_[block.value()] = {.created = ++tick_, .last_used = 0, .uses = 1, .priority = priority};
  owner_[block.value()] = owner;
  eviction_queue_.Count(owner, 1);
  allocator_.AddHold(block, BlockHolder::kCache);
}

void WindowCache::Reown(std::span<const BlockId> full, OwnerSlot owner) {
  for (const BlockId from : full) {
    const BlockId block = At(from);
    if (block == kNoBlock) continue;
    if (IsUnheld(block)) eviction_queue_.Erase(OwnerOf(block), block.value(), KeyOfBlock(block));
    eviction_queue_.Count(OwnerOf(block), -1);
    owner_[block.value()] = owner;
    eviction_queue_.Count(owner, 1);
    if (IsUnheld(block)) eviction_queue_.Push(owner, block.value(), KeyOfBlock(block));
  }
}

void WindowCache::DropOne(BlockId full) {
  const BlockId block = At(full);
  if (IsUnheld(block)) eviction_queue_.Erase(OwnerOf(block), block.value(), KeyOfBlock(block));
  eviction_queue_.Count(OwnerOf(block), -1);
  window_of_[full.value()] = kNoBlock;
  full_of_[block.value()] = kNoBlock;
  allocator_.ReleaseHold(block, BlockHolder::kCache);
}

void WindowCache::Drop(std::span<const BlockId> full) {
  for (const BlockId block : full) {
    if (block != kNoBlock && At(block) != kNoBlock) DropOne(block);
  }
}

void WindowCache::Allocate(int32_t count, std::vector<BlockId>& out) {
  const int32_t lacking = count - allocator_.free_count();
  if (lacking > 0) Evict(lacking);
  CHECK(allocator_.Allocate(count, BlockHolder::kSequence, out))
      << count << " window blocks needed, " << allocator_.free_count() << " are free";
}

bool WindowCache::AllocateRun(int32_t count, std::vector<BlockId>& out) {
  return allocator_.AllocateRun(count, BlockHolder::kSequence, out);
}

void WindowCache::AddHold(BlockId block, BlockHolder holder, int32_t priority) {
  if (IsCached(block) && IsUnheld(block)) {
    // before its key changes
    eviction_queue_.Erase(OwnerOf(block), block.value(), KeyOfBlock(block));
  }
  pinned_only_ -= IsPinnedOnly(block) ? 1 : 0;
  holder == BlockHolder::kStep ? allocator_.Claim(block, holder)
                               : allocator_.AddHold(block, holder);
  pinned_only_ += IsPinnedOnly(block) ? 1 : 0;
  if (holder != BlockHolder::kSequence || !IsCached(block)) return;
  NodeUse& use = use_[block.value()];
  ++use.uses;
  use.priority = std::max(use.priority, priority);
}

void WindowCache::ReleaseHold(BlockId block, BlockHolder holder) {
  pinned_only_ -= IsPinnedOnly(block) ? 1 : 0;
  allocator_.ReleaseHold(block, holder);
  pinned_only_ += IsPinnedOnly(block) ? 1 : 0;
  if (!IsCached(block) || !IsUnheld(block)) return;
  use_[block.value()].last_used = ++tick_;
  eviction_queue_.Push(OwnerOf(block), block.value(), KeyOfBlock(block));
}

int32_t WindowCache::Evict(int32_t count, bool keeps_shares) {
  int32_t evicted = 0;
  for (; evicted < count && !eviction_queue_.empty(); ++evicted) {
    const OwnerQueues::Victim victim = eviction_queue_.First(allocator_.limit());
    if (keeps_shares && !victim.over_share) break;
    DropOne(FullOf(BlockId(victim.entry)));
  }
  evicted_blocks_ += evicted;
  return evicted;
}

void WindowCache::Resize(int32_t limit) {
  CHECK_GE(limit, 1);
  if (limit < allocator_.limit()) Drop(std::span(full_of_).subspan(limit));
  allocator_.Resize(limit);
}

absl::Status WindowCache::CheckInvariants() const {
  RETURN_IF_ERROR(allocator_.CheckConservation());
  const auto broken = [&](int32_t block, std::string_view what) {
    return absl::InternalError(StrCat("window ", window_, ", block ", block, ": ", what));
  };
  int32_t pinned_only = 0;
  int64_t queued = 0;
  std::array<int32_t, CacheOwners::kSlots> cached_of = {};
  for (int32_t i = 0; i < allocator_.capacity(); ++i) {
    const BlockId block(i);
    pinned_only += IsPinnedOnly(block) ? 1 : 0;
    const bool cached = IsCached(block);
    if (cached && At(FullOf(block)) != block) return broken(i, "not beside its full block");
    if (allocator_.holds(block, BlockHolder::kCache) != (cached ? 1 : 0)) {
      return broken(i, "wrong number of radix holds");
    }
    cached_of[OwnerOf(block)] += cached ? 1 : 0;
    if (cached && i >= allocator_.limit()) return broken(i, "cached above the limit");
    const bool evictable = cached && IsUnheld(block);
    queued += evictable ? 1 : 0;
    if (evictable && !eviction_queue_.Contains(OwnerOf(block), i, KeyOfBlock(block))) {
      return broken(i, "evictable, but not queued");
    }
  }
  for (int slot = 0; slot < CacheOwners::kSlots; ++slot) {
    if (eviction_queue_.cached(static_cast<OwnerSlot>(slot)) == cached_of[slot]) continue;
    return absl::InternalError(
        StrCat("window ", window_, ": the count of blocks of owner slot ", slot, " is wrong"));
  }
  for (int32_t i = 0; i < static_cast<int32_t>(window_of_.size()); ++i) {
    const BlockId block = window_of_[i];
    if (block != kNoBlock && FullOf(block) != BlockId(i)) return broken(i, "is a stale full block");
  }
  if (queued != eviction_queue_.size() || pinned_only != pinned_only_) {
    return absl::InternalError(StrCat(
        "window ", window_, ": counts ", eviction_queue_.size(), " evictable and ", pinned_only_,
        " blocks held only by transfers and steps, recount finds ", queued, " and ", pinned_only));
  }
  return absl::OkStatus();
}

}  // namespace baton
