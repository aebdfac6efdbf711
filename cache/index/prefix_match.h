// Answer of the global index: the number of leading units of a sequence that each holder has.
//
// Reuse it, so that a lookup allocates nothing. Many holders with the same answer, for example
// those of a shared system prompt, are one group of bits. So the cost depends on the number of
// different answers, not on the size of the fleet.
//
// Thread safety: used by one thread at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/index/run_holders.h"

namespace baton {

class PrefixMatch {
 public:
  // 0 if the holder lacks the first unit. O(different answers).
  int32_t units(HolderId holder) const {
    for (const Single& single : singles_) {
      if (single.holder == holder) return single.units;
    }
    for (const Group& group : groups_) {
      if (holder / 64 < group.words &&
          (words_[group.first_word + holder / 64] >> holder % 64 & 1) != 0) {
        return group.units;
      }
    }
    return 0;
  }

  // Calls fn(HolderId, int32_t units) for every holder of at least the first unit, in any order.
  template <typename Function>
  void ForEach(const Function& fn) const {
    for (const Single& single : singles_) fn(single.holder, single.units);
    for (const Group& group : groups_) {
      for (size_t w = 0; w < group.words; ++w) {
        for (uint64_t bits = words_[group.first_word + w]; bits != 0; bits &= bits - 1) {
          fn(static_cast<HolderId>(w * 64 + std::countr_zero(bits)), group.units);
        }
      }
    }
  }

  // True if no event was applied during the lookup. Then the answer is the state after events()
  // events. If false, each run was read in a consistent state, but not all at the same moment.
  bool of_one_moment() const { return of_one_moment_; }
  uint64_t events() const { return events_; }
  // HolderTable::assignments() at the time of the lookup.
  uint64_t assignments() const { return assignments_; }

 private:
  friend class PrefixWalk;
  friend class GlobalIndex;
  struct Single {
    HolderId holder;
    int32_t units;
  };
  struct Group {
    int32_t units;
    uint32_t first_word;
    uint32_t words;
  };

  std::vector<Single> singles_;
  std::vector<Group> groups_;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> alive_;  // used by PrefixWalk
  std::vector<uint64_t> covering_;
  bool of_one_moment_ = false;
  uint64_t events_ = 0;
  uint64_t assignments_ = 0;
};

}  // namespace baton
