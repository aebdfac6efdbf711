#include "cache/block_allocator.h"

#include <algorithm>

#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

BlockAllocator::BlockAllocator(int32_t total_blocks) : total_(total_blocks) {
  CHECK_GE(total_blocks, 0);
  counts_.resize(total_blocks);
}

BlockAllocator::~BlockAllocator() {
  CHECK_EQ(free_count(), total_) << "blocks leaked: " << total_ - free_count();
}

BlockAllocator::Counts& BlockAllocator::counts(BlockId block) {
  CHECK(block.value() >= 0 && block.value() < total_) << "block " << block << " of " << total_;
  return counts_[block.value()];
}

const BlockAllocator::Counts& BlockAllocator::counts(BlockId block) const {
  CHECK(block.value() >= 0 && block.value() < total_) << "block " << block << " of " << total_;
  return counts_[block.value()];
}

BlockHolder BlockAllocator::StrongestHolder(const Counts& counts) {
  for (const BlockHolder holder : {BlockHolder::kTransfer, BlockHolder::kSequence}) {
    if (counts.holds[static_cast<int>(holder)] > 0) return holder;
  }
  return BlockHolder::kRadixNode;
}

void BlockAllocator::TakeFree(BlockId block, BlockHolder holder) {
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
  for (int32_t i = 0; i < total_; ++i) {
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
  // The lowest run never begins behind next_fresh_, so the fresh ids stay one range.
  std::erase_if(returned_,
                [&](BlockId block) { return block.value() >= begin && block.value() < end; });
  next_fresh_ = std::max(next_fresh_, end);
  for (int32_t i = begin; i < end; ++i) {
    TakeFree(BlockId(i), holder);
    out.push_back(BlockId(i));
  }
  return true;
}

void BlockAllocator::AddHold(BlockId block, BlockHolder holder) {
  Counts& held = counts(block);
  CHECK(!held.none()) << "hold on free block " << block;
  --held_by_class_[static_cast<int>(StrongestHolder(held))];
  ++held.holds[static_cast<int>(holder)];
  ++held_by_class_[static_cast<int>(StrongestHolder(held))];
}

void BlockAllocator::ReleaseHold(BlockId block, BlockHolder holder) {
  Counts& held = counts(block);
  CHECK_GT(held.holds[static_cast<int>(holder)], 0u) << "block " << block << " has no such hold";
  --held_by_class_[static_cast<int>(StrongestHolder(held))];
  --held.holds[static_cast<int>(holder)];
  if (held.none()) {
    returned_.push_back(block);
  } else {
    ++held_by_class_[static_cast<int>(StrongestHolder(held))];
  }
}

void BlockAllocator::ReleaseHolds(std::span<const BlockId> blocks, BlockHolder holder) {
  for (const BlockId block : blocks) ReleaseHold(block, holder);
}

uint32_t BlockAllocator::holds(BlockId block, BlockHolder holder) const {
  return counts(block).holds[static_cast<int>(holder)];
}

bool BlockAllocator::is_free(BlockId block) const { return counts(block).none(); }

BlockAllocator::Accounting BlockAllocator::Account() const {
  return {.total = total_,
          .free = free_count(),
          .in_transfer = held_by_class_[static_cast<int>(BlockHolder::kTransfer)],
          .owned = held_by_class_[static_cast<int>(BlockHolder::kSequence)],
          .cached = held_by_class_[static_cast<int>(BlockHolder::kRadixNode)],
          .never_used = total_ - next_fresh_};
}

absl::Status BlockAllocator::CheckConservation() const {
  std::vector<bool> listed_free(total_, false);
  for (const BlockId block : returned_) {
    if (block.value() >= next_fresh_ || listed_free[block.value()]) {
      return absl::InternalError(StrCat("block ", block.value(), " is on the free list wrongly"));
    }
    listed_free[block.value()] = true;
  }
  std::array<int32_t, kBlockHolderKinds> by_class{};
  for (int32_t i = 0; i < total_; ++i) {
    const bool free = i >= next_fresh_ || listed_free[i];
    if (free != counts_[i].none()) {
      return absl::InternalError(
          StrCat("block ", i, free ? " is free yet held" : " has no holder yet is not free"));
    }
    if (!free) ++by_class[static_cast<int>(StrongestHolder(counts_[i]))];
  }
  if (by_class != held_by_class_) {
    return absl::InternalError("kept counts of held blocks differ from the recount");
  }
  return absl::OkStatus();
}

}  // namespace baton
