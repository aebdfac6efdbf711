// The answer of the global index: how many leading units of a sequence each holder has.
//
// Made to be reused, so that a look-up allocates nothing. Many holders with the same answer (those
// of a shared system prompt) are one group of bits; so the answer costs what differs, not the size
// of the fleet.
//
// Thread safety: belongs to one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/index/run_holders.h"

namespace baton {

class PrefixMatch {
 public:
  // 0 when the holder lacks the first unit. O(different answers).
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

  // fn(HolderId, int32_t units) for every holder of at least the first unit, in no order.
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

  // Events the index had taken when this was the answer; nothing when writes went on meanwhile:
  // then every run was seen at some moment of the look-up, but not all at the same.
  bool of_one_moment() const { return of_one_moment_; }
  uint64_t events() const { return events_; }
  // Of HolderTable, when this was the answer.
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
  std::vector<uint64_t> alive_;  // the walk's
  std::vector<uint64_t> covering_;
  bool of_one_moment_ = false;
  uint64_t events_ = 0;
  uint64_t assignments_ = 0;
};

}  // namespace baton
