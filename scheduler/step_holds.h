// Tracks the steps in flight, and the blocks that only they may still use.
//
// A submitted step reads and writes blocks until it is collected. While the sequence has these
// blocks, nothing else is needed. If the sequence ends earlier, or swaps them, the latest step that
// uses them holds them here until it is collected. Blocks may belong to any KV group. Entries
// without a block (kNoBlock) are skipped.
//
// Pure. Thread safety: used by the engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "cache/kv_cache_spec.h"
#include "common/strong_int.h"

namespace baton {

class StepHolds {
 public:
  // REQUIRES: `cache` outlives this object.
  explicit StepHolds(KvCacheManager* cache) : cache_(cache) {}
  ~StepHolds();
  StepHolds(const StepHolds&) = delete;
  StepHolds& operator=(const StepHolds&) = delete;

  // A new step is in flight. Returns its number; numbers start at 1 and increase.
  int64_t Submit();
  // The oldest step has ended; releases the blocks that it holds. REQUIRES: a step is in flight.
  void Collect();
  int32_t in_flight() const { return static_cast<int32_t>(submitted_ - collected_); }
  bool InFlight(int64_t step) const { return step > collected_; }

  // Holds blocks for a step. REQUIRES: `step` is in flight.
  void Hold(int64_t step, std::span<const BlockId> blocks, int32_t group = 0);
  // Holds blocks for the step that is submitted next.
  void HoldForNext(std::span<const BlockId> blocks, int32_t group = 0);
  bool holds_for_next() const;
  // Releases the holds for the next step.
  void ReleaseForNext();
  // All held blocks of the group. A block is listed once for each hold.
  std::vector<BlockId> Held(int32_t group = 0) const;
  bool empty() const { return held_count_ == 0; }

 private:
  using GroupBlocks = std::array<std::vector<BlockId>, kMaxKvGroups>;

  void Add(GroupBlocks& to, std::span<const BlockId> blocks, int32_t group);
  void Release(GroupBlocks& held);

  KvCacheManager* const cache_;
  int64_t submitted_ = 0;
  int64_t collected_ = 0;
  std::deque<GroupBlocks> held_;  // by step in flight, oldest first
  GroupBlocks for_next_;
  size_t held_count_ = 0;
};

}  // namespace baton
