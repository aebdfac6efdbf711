// Which steps are in flight, and the blocks that they alone may still use.
//
// A submitted step reads and writes blocks until it is collected. As long as their sequence keeps
// them, nothing else is needed. When it ends earlier, or has them swapped for others, the youngest
// step that knows them holds them here until it is collected. They may be of any KV group;
// entries without a block (kNoBlock) are left out.
//
// Pure. Thread safety: belongs to the engine thread.
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
  // `cache` outlives this.
  explicit StepHolds(KvCacheManager* cache) : cache_(cache) {}
  ~StepHolds();
  StepHolds(const StepHolds&) = delete;
  StepHolds& operator=(const StepHolds&) = delete;

  // One more step is in flight. Returns its number; they rise from 1.
  int64_t Submit();
  // The oldest step is over: what it holds goes back. REQUIRES: one is in flight.
  void Collect();
  int32_t in_flight() const { return static_cast<int32_t>(submitted_ - collected_); }
  bool InFlight(int64_t step) const { return step > collected_; }

  // REQUIRES: `step` is in flight.
  void Hold(int64_t step, std::span<const BlockId> blocks, int32_t group = 0);
  // For the step that is submitted next.
  void HoldForNext(std::span<const BlockId> blocks, int32_t group = 0);
  bool holds_for_next() const;
  // No step will use them any more.
  void ReleaseForNext();
  // Every block of the group that is held here, as often as it is.
  std::vector<BlockId> Held(int32_t group = 0) const;
  bool empty() const { return held_count_ == 0; }

 private:
  using GroupBlocks = std::array<std::vector<BlockId>, kMaxKvGroups>;

  void Add(GroupBlocks& to, std::span<const BlockId> blocks, int32_t group);
  void Release(GroupBlocks& held);

  KvCacheManager* const cache_;
  int64_t submitted_ = 0;
  int64_t collected_ = 0;
  std::deque<GroupBlocks> held_;  // by the steps in flight, the oldest first
  GroupBlocks for_next_;
  size_t held_count_ = 0;
};

}  // namespace baton
