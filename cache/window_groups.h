// The sliding-window groups of a cache, taken together: none in a model without windows.
//
// A sequence that begins, grows, forks or ends does so in every group, or in none. What each group
// does is in window_tables.h.
//
// Thread safety: belongs to the engine thread.
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
  // Groups 1, 2, ... beside `tree`. REQUIRES: at most kMaxKvGroups - 1 windows (CHECK), each as
  // WindowTables; the tree is empty and, like `trace`, outlives this.
  WindowGroups(std::span<const WindowPoolOptions> windows, const Options& options, RadixTree* tree,
               AllocationTrace* trace);
  WindowGroups(const WindowGroups&) = delete;
  WindowGroups& operator=(const WindowGroups&) = delete;

  bool empty() const { return groups_.empty(); }
  int32_t size() const { return static_cast<int32_t>(groups_.size()); }
  // Group `group`, from 1 on.
  WindowTables& At(int32_t group) { return *groups_[group - 1]; }
  const WindowTables& At(int32_t group) const { return *groups_[group - 1]; }
  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }

  // As WindowTables, in every group.
  void Begin(SequenceId id, std::span<const BlockId> path, int32_t priority);
  // ResourceExhausted, and nothing taken, if a group has no such run.
  absl::Status BeginRuns(SequenceId id, int32_t blocks);

  using Growths = absl::InlinedVector<WindowTables::Growth, kMaxKvGroups - 1>;
  // Frees what slid out of the windows, and plans how the tables grow to `tokens`: computed, or
  // imported. ResourceExhausted, with both numbers, if a group has no room.
  absl::StatusOr<Growths> PlanGrowth(SequenceId id, int32_t committed, int32_t tokens,
                                     bool imports);
  // Takes the blocks, and appends the copies to make. REQUIRES: planned, and nothing done since but
  // freeing blocks.
  void Grow(SequenceId id, const Growths& growths, std::vector<BlockCopy>& copies);

  // Frees the blocks that no token behind `committed` sees.
  void FreeBehind(SequenceId id, int32_t committed);
  void Insert(SequenceId id, int32_t first, std::span<const BlockId> full);
  absl::Status CheckRoomToFork(SequenceId parent, int32_t committed) const;
  void Fork(SequenceId parent, SequenceId child, int32_t committed);
  void Release(SequenceId id);
  // Evicts cached blocks past the marks.
  void KeepWaterMarks(const WaterMarks& marks);

  // The longest boundary in [committed, tokens] whose windows the sequence has blocks for.
  int32_t LongestWhole(SequenceId id, int32_t committed, int32_t tokens) const;
  // ResourceExhausted, with both numbers, if a prefix of `tokens` tokens, `matched` of them cached,
  // leaves fewer than `spare_blocks` in a group.
  absl::Status CheckRoomToImport(int32_t matched, int32_t tokens, int32_t spare_blocks) const;
  // Writes into groups 1, 2, ... of `counts` what a sequence of `tokens` tokens, `matched` of them
  // cached, is charged.
  void ChargeToAdmit(int32_t matched, int32_t tokens, BlockCounts& counts) const;

  // Recounts one sequence against its full table / every group. Internal names what differs.
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
