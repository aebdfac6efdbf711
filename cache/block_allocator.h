// Hands out block ids and knows who holds each: ids only, no memory.
//
// Invariants:
//  1. A block is free exactly when its holder counts (sequences, radix nodes, transfers) are all
//     zero.
//  2. free + held = total, always; CheckConservation recounts it.
//  3. O(1) per block for allocate, hold, release and accounting. A block that was never handed out
//     is never touched: fresh ids are handed out only when no returned one is left, so memory is
//     committed as it is used.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/strong_int.h"

namespace baton {

enum class BlockHolder : uint8_t { kSequence, kRadixNode, kTransfer };
inline constexpr int kBlockHolderKinds = 3;

class BlockAllocator {
 public:
  explicit BlockAllocator(int32_t total_blocks);
  // Every block must have come home: a leak is a bug (CHECK).
  ~BlockAllocator();
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  int32_t total() const { return total_; }
  int32_t free_count() const {
    return total_ - next_fresh_ + static_cast<int32_t>(returned_.size());
  }

  // Appends `count` blocks, each with one hold of kind `holder`. False, and nothing taken, when
  // fewer are free.
  bool Allocate(int32_t count, BlockHolder holder, std::vector<BlockId>& out);
  // `count` blocks with consecutive ids (contiguous mode), the lowest such run. False when no run
  // is free. O(total).
  bool AllocateRun(int32_t count, BlockHolder holder, std::vector<BlockId>& out);

  // REQUIRES: the block is not free (CHECK).
  void AddHold(BlockId block, BlockHolder holder);
  // REQUIRES: the hold exists (CHECK). The last one frees the block.
  void ReleaseHold(BlockId block, BlockHolder holder);
  void ReleaseHolds(std::span<const BlockId> blocks, BlockHolder holder);

  uint32_t holds(BlockId block, BlockHolder holder) const;
  bool is_free(BlockId block) const;

  // Blocks by their strongest holder, for accounting: in flight, else owned by a sequence, else
  // cached.
  struct Accounting {
    int32_t total = 0;
    int32_t free = 0;
    int32_t in_transfer = 0;
    int32_t owned = 0;
    int32_t cached = 0;
    int32_t never_used = 0;
    bool operator==(const Accounting&) const = default;
  };
  Accounting Account() const;
  // Recounts every block: Internal names the first that breaks invariant 1 or 2. O(total).
  absl::Status CheckConservation() const;

 private:
  struct Counts {
    std::array<uint32_t, kBlockHolderKinds> holds{};
    bool none() const { return (holds[0] | holds[1] | holds[2]) == 0; }
  };
  Counts& counts(BlockId block);
  const Counts& counts(BlockId block) const;
  // The class of Accounting that a held block falls in: an index into held_by_class_.
  static BlockHolder StrongestHolder(const Counts& counts);
  void TakeFree(BlockId block, BlockHolder holder);
  int32_t FindRun(int32_t count) const;

  int32_t total_;
  int32_t next_fresh_ = 0;
  std::vector<BlockId> returned_;  // LIFO: the warmest block first
  std::vector<Counts> counts_;
  std::array<int32_t, kBlockHolderKinds> held_by_class_{};  // by strongest holder
};

}  // namespace baton
