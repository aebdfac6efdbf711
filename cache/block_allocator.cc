#include "cache/block_allocator.h"

#include <algorithm>

#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

BlockAllocator::BlockAllocator(int32_t total_blocks, int32_t capacity) : limit_(total_blocks) {
  CHECK(total_blocks >= 0 && total_blocks <= capacity) << total_blocks << " blocks of " << capacity;
  counts_.resize(capacity);
}

BlockAllocator::~BlockAllocator() {
  CHECK_EQ(free_count(), total()) << "blocks leaked: " << total() - free_count();
}

const BlockAllocator::Counts& BlockAllocator::CheckedCounts(BlockId block) const {
  CHECK(block.value() >= 0 && block.value() < capacity())
      << "block " << block << " of " << capacity();
  return counts_[block.value()];
}

BlockHolder BlockAllocator::StrongestHolder(const Counts& counts) {
  for (const BlockHolder holder :
       {BlockHolder::kTransfer, BlockHolder::kSequence, BlockHolder::kCache}) {
    if (counts.holds[static_cast<int>(holder)] > 0) return holder;
  }
  return BlockHolder::kStep;
}

void BlockAllocator::TakeFree(BlockId block, BlockHolder holder) {
  if (IsPin(holder)) ++pinned_;
  counts_[block.value()].holds[static_cast<int>(holder)] = 1;
  ++held_by_class_[static_cast<int>(holder)];
}

bool BlockAllocator::Allocate(int32_t count, BlockHolder holder, std::vector<BlockId>& out) {
  CHECK_GE(count, 0);
  if (count > free_count()) return false;
  for (int32_t i = 0; i < count; ++i) {
    BlockId block(next_fresh_);
    if (returned_.empty()) {
      ++next_fresh_;
    } else {
      block = returned_.back();
      returned_.pop_back();
    }
    TakeFree(block, holder);
    out.push_back(block);
  }
  return true;
}

int32_t BlockAllocator::FindRun(int32_t count) const {
  int32_t run = 0;
  for (int32_t i = 0; i < limit_; ++i) {
    run = counts_[i].none() ? run + 1 : 0;
    if (run == count) return i + 1 - count;
  }
  return -1;
}

bool BlockAllocator::AllocateRun(int32_t count, BlockHolder holder, std::vector<BlockId>& out) {
  CHECK_GE(count, 0);
  if (count == 0) return true;
  const int32_t begin = FindRun(count);
  if (begin < 0) return false;
  const int32_t end = begin + count;
  // The lowest run never begins above next_fresh_, so the fresh ids stay one range.
  std::erase_if(returned_,
                [&](BlockId block) { return block.value() >= begin && block.value() < end; });
  next_fresh_ = std::max(next_fresh_, end);
  for (int32_t i = begin; i < end; ++i) {
    TakeFree(BlockId(i), holder);
    out.push_back(BlockId(i));
  }
  return true;
}

void BlockAllocator::Claim(BlockId block, BlockHolder holder) {
  if (!counts(block).none()) return AddHold(block, holder);
  CHECK_LT(block.value(), next_fresh_) << "block " << block << " was never handed out";
  if (block.value() < limit_) {
    std::erase(returned_, block);
  } else {
    ++retiring_;
  }
  TakeFree(block, holder);
}

void BlockAllocator::AddHold(BlockId block, BlockHolder holder) {
  Counts& held = counts(block);
  CHECK(!held.none()) << "cannot add a hold to free block " << block;
  const BlockHolder before = StrongestHolder(held);
  ++held.holds[static_cast<int>(holder)];
  if (IsPin(holder) && pins(block) == 1) ++pinned_;
  const BlockHolder now = StrongestHolder(held);
  if (now == before) return;
  --held_by_class_[static_cast<int>(before)];
  ++held_by_class_[static_cast<int>(now)];
}

void BlockAllocator::ReleaseHold(BlockId block, BlockHolder holder) {
  Counts& held = counts(block);
  CHECK_GT(held.holds[static_cast<int>(holder)], 0u)
      << "block " << block << " has no hold of this kind";
  --held_by_class_[static_cast<int>(StrongestHolder(held))];
  --held.holds[static_cast<int>(holder)];
  if (IsPin(holder) && pins(block) == 0) --pinned_;
  if (held.none()) {
    if (block.value() < limit_) {
      returned_.push_back(block);
    } else {
      --retiring_;
    }
  } else {
    ++held_by_class_[static_cast<int>(StrongestHolder(held))];
  }
}

void BlockAllocator::ReleaseHolds(std::span<const BlockId> blocks, BlockHolder holder) {
  // In reverse, so that a later allocation hands out the ids in their original order.
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) ReleaseHold(*it, holder);
}

void BlockAllocator::Resize(int32_t limit) {
  CHECK(limit >= 0 && limit <= capacity()) << limit << " blocks of " << capacity();
  std::erase_if(returned_, [&](BlockId block) { return block.value() >= limit; });
  for (int32_t i = std::min(limit, limit_); i < std::min(std::max(limit, limit_), next_fresh_);
       ++i) {
    if (counts_[i].none()) {
      if (limit > limit_) returned_.push_back(BlockId(i));
    } else {
      retiring_ += limit > limit_ ? -1 : 1;
    }
  }
  limit_ = limit;
}

void BlockAllocator::AddHolds(std::span<const BlockId> blocks, BlockHolder holder) {
  if (holder != BlockHolder::kCache) {
    for (const BlockId block : blocks) AddHold(block, holder);
    return;
  }
  // Fast path, because this runs for every block of every prompt. A block that a sequence holds
  // does not change its class.
  for (const BlockId block : blocks) {
    Counts& held = counts(block);
    if (held.holds[static_cast<int>(BlockHolder::kSequence)] == 0) {
      AddHold(block, holder);
      continue;
    }
    CHECK(!held.none()) << "cannot add a hold to free block " << block;
    ++held.holds[static_cast<int>(BlockHolder::kCache)];
  }
}

std::optional<BlockId> BlockAllocator::MakeWritable(BlockId block, BlockHolder holder) {
  CHECK_GT(holds(block, holder), 0u) << "block " << block << " has no hold of this kind";
  if (holds(block, holder) == 1) return block;
  std::vector<BlockId> fresh;
  if (!Allocate(1, holder, fresh)) return std::nullopt;
  ReleaseHold(block, holder);
  return fresh[0];
}

uint32_t BlockAllocator::holds(BlockId block, BlockHolder holder) const {
  return counts(block).holds[static_cast<int>(holder)];
}

bool BlockAllocator::is_free(BlockId block) const { return counts(block).none(); }

BlockAllocator::Accounting BlockAllocator::Account() const {
  return {.total = total(),
          .free = free_count(),
          .in_transfer = in_transfer(),
          .owned = held_by_class_[static_cast<int>(BlockHolder::kSequence)],
          .cached = held_by_class_[static_cast<int>(BlockHolder::kCache)],
          .step = held_by_class_[static_cast<int>(BlockHolder::kStep)],
          .never_used = fresh_count()};
}

absl::Status BlockAllocator::CheckConservation() const {
  std::vector<bool> listed_free(capacity(), false);
  for (const BlockId block : returned_) {
    if (block.value() >= std::min(next_fresh_, limit_) || listed_free[block.value()]) {
      return absl::InternalError(
          StrCat("block ", block.value(), " is on the free list but must not be"));
    }
    listed_free[block.value()] = true;
  }
  std::array<int32_t, kBlockHolderKinds> by_class{};
  int32_t retiring = 0;
  int32_t pinned = 0;
  for (int32_t i = 0; i < capacity(); ++i) {
    const bool free = i >= next_fresh_ || i >= limit_ ? counts_[i].none() : listed_free[i];
    if (free != counts_[i].none() || (!free && i >= next_fresh_)) {
      return absl::InternalError(StrCat("block ", i,
                                        free ? " is on the free list but has holds"
                                             : " has no holds but is not on the free list"));
    }
    if (free) continue;
    ++by_class[static_cast<int>(StrongestHolder(counts_[i]))];
    retiring += i >= limit_;
    pinned += pins(BlockId(i)) > 0;
  }
  if (pinned != pinned_) {
    return absl::InternalError(
        StrCat("counts ", pinned_, " pinned blocks, recount finds ", pinned));
  }
  if (retiring != retiring_) {
    return absl::InternalError(
        StrCat("counts ", retiring_, " retiring blocks, recount finds ", retiring));
  }
  if (by_class != held_by_class_) {
    constexpr int kTransfer = static_cast<int>(BlockHolder::kTransfer);
    constexpr int kSequence = static_cast<int>(BlockHolder::kSequence);
    constexpr int kNode = static_cast<int>(BlockHolder::kCache);
    constexpr int kStep = static_cast<int>(BlockHolder::kStep);
    return absl::InternalError(
        StrCat("counts ", held_by_class_[kTransfer], " blocks in transfer, ",
               held_by_class_[kSequence], " owned, ", held_by_class_[kNode], " cached, ",
               held_by_class_[kStep], " held by steps; recount finds ", by_class[kTransfer], ", ",
               by_class[kSequence], ", ", by_class[kNode], " and ", by_class[kStep]));
  }
  return absl::OkStatus();
}

}  // namespace baton
