// Allocates block ids and counts the holds on each block. It handles ids only, no memory.
//
// A hold is one counted reference to a block. Its kind names the holder: a sequence, a cache,
// a transfer or a step.
//
// The pool grows and shrinks while the worker serves. Ids below the capacity are reserved (an
// address range), and ids below the limit may be handed out. Shrinking retires the ids at or above
// the new limit. Free ones retire at once, others when their last hold is released. Growing takes
// retired ids back.
//
// Invariants:
//  1. A block is free exactly when it has no hold of any kind and its id is below the limit.
//  2. free + held = total, always; CheckConservation recounts it. The total is the ids below the
//     limit plus the held ids above it (retiring).
//  3. Allocate, hold, release and accounting take O(1) for each block. Fresh ids are handed out
//     only when no returned id is left. So memory that is not populated at start is committed only
//     as it is used.
//
// Forks (parallel samples, beams) share blocks by adding holds. A holder may write a block if it
// has the only hold of its kind. Otherwise MakeWritable gives it another block, and the caller
// copies the bytes.
//
// Thread safety: used by the engine thread only.
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

// kCache: the prefix tree (or a window's cache), or the chunk cache.
enum class BlockHolder : uint8_t { kSequence, kCache, kTransfer, kStep };
inline constexpr int kBlockHolderKinds = 4;

class BlockAllocator {
 public:
  // REQUIRES: 0 <= total_blocks <= capacity.
  explicit BlockAllocator(int32_t total_blocks) : BlockAllocator(total_blocks, total_blocks) {}
  BlockAllocator(int32_t total_blocks, int32_t capacity);
  // REQUIRES: every block is free (CHECK). A leaked block is a bug.
  ~BlockAllocator();
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  int32_t total() const { return limit_ + retiring_; }
  int32_t capacity() const { return static_cast<int32_t>(counts_.size()); }
  int32_t limit() const { return limit_; }
  // Ids above the limit that still have holds. At zero, no memory above the limit is in use.
  int32_t retiring() const { return retiring_; }
  int32_t free_count() const { return fresh_count() + static_cast<int32_t>(returned_.size()); }

  // Moves the limit. REQUIRES: 0 <= limit <= capacity. O(blocks ever handed out).
  void Resize(int32_t limit);

  // Appends `count` blocks to `out`, each with one hold of kind `holder`. Returns false and takes
  // nothing if fewer are free.
  bool Allocate(int32_t count, BlockHolder holder, std::vector<BlockId>& out);
  // Same, but the blocks have consecutive ids (contiguous mode). It takes the lowest free run of
  // that length. Returns false and takes nothing if there is none. O(total).
  bool AllocateRun(int32_t count, BlockHolder holder, std::vector<BlockId>& out);

  // Adds a hold to a block that was handed out before and may be free again. O(free blocks) if it
  // is free.
  void Claim(BlockId block, BlockHolder holder);
  // REQUIRES: the block is not free (CHECK).
  void AddHold(BlockId block, BlockHolder holder);
  // REQUIRES: the hold exists (CHECK). Releasing the last hold frees the block.
  void ReleaseHold(BlockId block, BlockHolder holder);
  void ReleaseHolds(std::span<const BlockId> blocks, BlockHolder holder);

  // Adds one hold to each block. Forks and the radix tree use it. REQUIRES: none is free (CHECK).
  void AddHolds(std::span<const BlockId> blocks, BlockHolder holder);
  // Returns a block that the owner of one `holder` hold may write. If that is the only hold of its
  // kind, the result is `block` itself. Otherwise the hold moves to a new block, and the caller
  // copies the contents. Returns nullopt and changes nothing if no block is free. REQUIRES: the
  // hold exists (CHECK).
  std::optional<BlockId> MakeWritable(BlockId block, BlockHolder holder);

  // Address of a block's hold counts, for prefetching.
  const void* CountsOf(BlockId block) const { return &counts_[block.value()]; }

  // Blocks that transfers hold.
  int32_t in_transfer() const { return held_by_class_[static_cast<int>(BlockHolder::kTransfer)]; }
  // Holds of transfers and steps. They can outlive the block's sequences.
  uint32_t pins(BlockId block) const {
    return holds(block, BlockHolder::kTransfer) + holds(block, BlockHolder::kStep);
  }
  // Blocks with such a hold.
  int32_t pinned() const { return pinned_; }
  uint32_t holds(BlockId block, BlockHolder holder) const;
  bool is_free(BlockId block) const;  // no holds of any kind
  // Returns true if the block is in use, not merely cached: it has a hold that is not kCache.
  bool is_in_use(BlockId block) const {
    return holds(block, BlockHolder::kSequence) > 0 || pins(block) > 0;
  }

  // Counts each block once, by its strongest holder. The order is: in transfer, owned by a
  // sequence, cached, held only by steps.
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
  // Recounts every block. Internal names the first violation of invariant 1 or 2. O(total).
  absl::Status CheckConservation() const;

 private:
  struct Counts {
    std::array<uint32_t, kBlockHolderKinds> holds{};
    bool none() const { return (holds[0] | holds[1] | holds[2] | holds[3]) == 0; }
  };
  // REQUIRES: the block id is below capacity (CHECK). The failure path is out of line, because this
  // function runs for every block of every prompt.
  const Counts& counts(BlockId block) const {
    const size_t at = static_cast<uint32_t>(block.value());
    return at < counts_.size() ? counts_[at] : CheckedCounts(block);
  }
  Counts& counts(BlockId block) {
    return const_cast<Counts&>(static_cast<const BlockAllocator&>(*this).counts(block));
  }
  const Counts& CheckedCounts(BlockId block) const;
  // The strongest holder of a held block. It is an index into held_by_class_.
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
  std::vector<BlockId> returned_;  // below the limit; LIFO, so that recently used blocks come first
  std::vector<Counts> counts_;
  std::array<int32_t, kBlockHolderKinds> held_by_class_{};  // by strongest holder
  int32_t pinned_ = 0;
};

}  // namespace baton
