// Hands out block ids and knows who holds each: ids only, no memory.
//
// The pool grows and shrinks while serving: ids below its capacity are reserved (an address range),
// those below its limit are handed out. Shrinking retires the ids behind the new limit: free ones
// at once, others when their last hold goes. Growing again takes retired ids back.
//
// Invariants:
//  1. A block is free exactly when its holder counts (sequences, radix nodes, transfers, steps) are
//     all zero and its id is below the limit.
//  2. free + held = total, always; CheckConservation recounts it. total counts the ids below the
//     limit, and held ones behind it (retiring).
//  3. O(1) per block for allocate, hold, release and accounting. Fresh ids are handed out only when
//     no returned one is left. Memory that is not populated at start is so committed as it is used.
//
// Forks (parallel samples, beams) share blocks by holding them once more. A block is writable for a
// holder that is the only one of its kind; MakeWritable gives the others a block of their own, and
// the caller copies what was in the old one: ids here, bytes elsewhere.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/strong_int.h"

namespace baton {

enum class BlockHolder : uint8_t { kSequence, kRadixNode, kTransfer, kStep };
inline constexpr int kBlockHolderKinds = 4;

class BlockAllocator {
 public:
  // REQUIRES: 0 <= total_blocks <= capacity.
  explicit BlockAllocator(int32_t total_blocks) : BlockAllocator(total_blocks, total_blocks) {}
  BlockAllocator(int32_t total_blocks, int32_t capacity);
  // Every block must have come home: a leak is a bug (CHECK).
  ~BlockAllocator();
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  int32_t total() const { return limit_ + retiring_; }
  int32_t capacity() const { return static_cast<int32_t>(counts_.size()); }
  int32_t limit() const { return limit_; }
  // Blocks behind the limit that are still held. When it is zero nobody uses memory there.
  int32_t retiring() const { return retiring_; }
  int32_t free_count() const { return fresh_count() + static_cast<int32_t>(returned_.size()); }

  // Moves the limit. REQUIRES: 0 <= limit <= capacity. O(blocks ever handed out).
  void Resize(int32_t limit);

  // Appends `count` blocks, each with one hold of kind `holder`. False, and nothing taken, when
  // fewer are free.
  bool Allocate(int32_t count, BlockHolder holder, std::vector<BlockId>& out);
  // `count` blocks with consecutive ids (contiguous mode), the lowest such run. False when no run
  // is free. O(total).
  bool AllocateRun(int32_t count, BlockHolder holder, std::vector<BlockId>& out);

  // One more hold on a block that was handed out before and may be free again. O(free blocks) if
  // so.
  void Claim(BlockId block, BlockHolder holder);
  // REQUIRES: the block is not free (CHECK).
  void AddHold(BlockId block, BlockHolder holder);
  // REQUIRES: the hold exists (CHECK). The last one frees the block.
  void ReleaseHold(BlockId block, BlockHolder holder);
  void ReleaseHolds(std::span<const BlockId> blocks, BlockHolder holder);

  // One more hold on each block: what a fork shares, or the tree comes to hold. REQUIRES: none is
  // free (CHECK).
  void AddHolds(std::span<const BlockId> blocks, BlockHolder holder);
  // The block that the holder of one `holder` hold may write: `block` itself when nobody else of
  // that kind holds it, else a new block in exchange for the hold, into which the caller copies.
  // None, and nothing changed, when no block is free. REQUIRES: the hold exists (CHECK).
  std::optional<BlockId> MakeWritable(BlockId block, BlockHolder holder);

  // Where a block's holds are counted: memory to ask for ahead of its use.
  const void* CountsOf(BlockId block) const { return &counts_[block.value()]; }

  // Blocks that a transfer holds.
  int32_t in_transfer() const { return held_by_class_[static_cast<int>(BlockHolder::kTransfer)]; }
  // Holds of transfers and steps. They use a block also after its sequences have ended.
  uint32_t pins(BlockId block) const {
    return holds(block, BlockHolder::kTransfer) + holds(block, BlockHolder::kStep);
  }
  // Blocks with such a hold.
  int32_t pinned() const { return pinned_; }
  uint32_t holds(BlockId block, BlockHolder holder) const;
  bool is_free(BlockId block) const;  // nobody holds it
  // Whether it has a hold of another kind than kRadixNode: it is in use, not merely cached.
  bool is_in_use(BlockId block) const {
    return holds(block, BlockHolder::kSequence) > 0 || pins(block) > 0;
  }

  // Blocks by their strongest holder, for accounting: in flight, else owned by a sequence, else
  // cached, else held by steps alone.
  struct Accounting {
    int32_t total = 0;
    int32_t free = 0;
    int32_t in_transfer = 0;
    int32_t owned = 0;
    int32_t cached = 0;
    int32_t step = 0;
    int32_t never_used = 0;
    bool operator==(const Accounting&) const = default;
  };
  Accounting Account() const;
  // Recounts every block: Internal names the first that breaks invariant 1 or 2. O(total).
  absl::Status CheckConservation() const;

 private:
  struct Counts {
    std::array<uint32_t, kBlockHolderKinds> holds{};
    bool none() const { return (holds[0] | holds[1] | holds[2] | holds[3]) == 0; }
  };
  // REQUIRES: block is one of ours (CHECK). Inline without what the failure says: it is called for
  // every block of every prompt.
  const Counts& counts(BlockId block) const {
    const size_t at = static_cast<uint32_t>(block.value());
    return at < counts_.size() ? counts_[at] : CheckedCounts(block);
  }
  Counts& counts(BlockId block) {
    return const_cast<Counts&>(static_cast<const BlockAllocator&>(*this).counts(block));
  }
  const Counts& CheckedCounts(BlockId block) const;
  // The class of Accounting that a held block falls in: an index into held_by_class_.
  static BlockHolder StrongestHolder(const Counts& counts);
  static bool IsPin(BlockHolder holder) {
    return holder == BlockHolder::kTransfer || holder == BlockHolder::kStep;
  }
  int32_t fresh_count() const { return std::max(0, limit_ - next_fresh_); }
  void TakeFree(BlockId block, BlockHolder holder);
  int32_t FindRun(int32_t count) const;

  int32_t limit_;
  int32_t retiring_ = 0;
  int32_t next_fresh_ = 0;         // ids from here on were never handed out
  std::vector<BlockId> returned_;  // below the limit; LIFO: the warmest block first
  std::vector<Counts> counts_;
  std::array<int32_t, kBlockHolderKinds> held_by_class_{};  // by strongest holder
  int32_t pinned_ = 0;
};

}  // namespace baton
