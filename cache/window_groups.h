// The sliding-window groups of a cache, as one object. Empty in a model without windows.
//
// A sequence begins, grows, forks and ends in every group or in none. window_tables.h describes one
// group.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/allocation_trace.h"
#include "cache/block_copy.h"
#include "cache/block_counts.h"
#include "cache/eviction_policy.h"
#include "cache/kv_cache_spec.h"
#include "cache/radix_tree.h"
#include "cache/water_marks.h"
#include "cache/window_tables.h"
#include "common/strong_int.h"

namespace baton {

class WindowGroups {
 public:
  struct Options {
    int32_t block_size = 16;
    int32_t max_step_tokens = 512;
    int32_t full_blocks = 0;  // capacity of the full-attention group
    EvictionPolicy policy = EvictionPolicy::kLru;
  };
  // Creates groups 1, 2, ... beside `tree`. REQUIRES: at most kMaxKvGroups - 1 windows (CHECK),
  // each valid for WindowTables; the tree is empty; `tree` and `trace` outlive this object.
  WindowGroups(std::span<const WindowPoolOptions> windows, const Options& options, RadixTree* tree,
               AllocationTrace* trace);
  WindowGroups(const WindowGroups&) = delete;
  WindowGroups& operator=(const WindowGroups&) = delete;

  bool empty() const { return groups_.empty(); }
  int32_t size() const { return static_cast<int32_t>(groups_.size()); }
  // Group number `group`, from 1 on.
  WindowTables& At(int32_t group) { return *groups_[group - 1]; }
  const WindowTables& At(int32_t group) const { return *groups_[group - 1]; }
  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }

  // As in WindowTables, for every group.
  void Begin(SequenceId id, std::span<const BlockId> path, int32_t priority);
  // ResourceExhausted, and nothing taken, if a group has no such run.
  absl::Status BeginRuns(SequenceId id, int32_t blocks);

  using Growths = absl::InlinedVector<WindowTables::Growth, kMaxKvGroups - 1>;
  // Frees the blocks that slid out of the windows. Plans how the tables grow to `tokens`, by
  // computing or by importing them. ResourceExhausted, with both numbers, if a group has no room.
  absl::StatusOr<Growths> PlanGrowth(SequenceId id, int32_t committed, int32_t tokens,
                                     bool imports);
  // Takes the planned blocks, and appends the copies that the caller must make. REQUIRES: nothing
  // but freeing blocks happened since the plan.
  void Grow(SequenceId id, const Growths& growths, std::vector<BlockCopy>& copies);

  // Frees the blocks that no token after `committed` sees.
  void FreeBehind(SequenceId id, int32_t committed);
  void Insert(SequenceId id, int32_t first, std::span<const BlockId> full, OwnerSlot owner);
  absl::Status CheckRoomToFork(SequenceId parent, int32_t committed) const;
  void Fork(SequenceId parent, SequenceId child, int32_t committed);
  void Release(SequenceId id);
  // Evicts cached blocks above the watermarks, only of owners that are over their share.
  void KeepWaterMarks(const WaterMarks& marks);

  // The longest boundary in [committed, tokens] for which the sequence has all window blocks.
  int32_t LongestWhole(SequenceId id, int32_t committed, int32_t tokens) const;
  // ResourceExhausted, with both numbers, if importing a prefix would leave fewer than
  // `spare_blocks` blocks in a group. The prefix has `tokens` tokens, of which `matched` are
  // cached.
  absl::Status CheckRoomToImport(int32_t matched, int32_t tokens, int32_t spare_blocks) const;
  // Writes the charge of a sequence of `tokens` tokens, `matched` of them cached, into groups 1, 2,
  // ... of `counts`.
  void ChargeToAdmit(int32_t matched, int32_t tokens, BlockCounts& counts) const;

  // Recounts one sequence against its full table, or every group. Internal names the first
  // difference.
  absl::Status CheckSequence(SequenceId id, int32_t committed, std::span<const BlockId> full,
                             int32_t shared_blocks) const;
  absl::Status CheckConservation() const;

 private:
  void Trim(WindowTables& group, SequenceId id, int32_t committed);
  void Trace(const WindowTables& group, SequenceId id, int32_t committed, int32_t held_before);

  std::vector<std::unique_ptr<WindowTables>> groups_;
  AllocationTrace& trace_;
};

}  // namespace baton
