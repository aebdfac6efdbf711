// Answer of the global index: the number of leading units of a sequence that each holder has.
//
// Reuse it, so that a lookup allocates nothing. Many holders with the same answer, for example
// those of a shared system prompt, are one group of bits. So the cost depends on the number of
// different answers, not on the size of the fleet.
//
// Thread safety: used by one thread at a time.
#pragma once

#include <algorithm>
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

  // Calls fn(HolderId, int32_t units) for the `most` holders with the most units, or for all if
  // there are fewer. If only a part of the holders with equal units is needed, `turn` selects it,
  // so that different turns find different ones. Each holder comes once.
  template <typename Function>
  void ForDeepest(size_t most, uint64_t turn, const Function& fn) const {
    for (const Answer& answer : Answers()) {
      if (most == 0) return;
      if (answer.group == nullptr) {
        fn(answer.holder, answer.units);
        --most;
      } else {
        most -= ForSome(*answer.group, most, turn, fn);
      }
    }
  }
  // The different numbers of units, rising.
  std::vector<int32_t> DifferentUnits() const {
    std::vector<int32_t> units;
    for (const Answer& answer : Answers()) {
      if (units.empty() || units.back() != answer.units) units.push_back(answer.units);
    }
    std::reverse(units.begin(), units.end());
    return units;
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

  // One holder, or a group of them.
  struct Answer {
    int32_t units;
    HolderId holder;
    const Group* group;
  };
  // Most units first.
  std::vector<Answer> Answers() const {
    std::vector<Answer> answers;
    answers.reserve(singles_.size() + groups_.size());
    for (const Group& group : groups_) answers.push_back({group.units, 0, &group});
    for (const Single& single : singles_) answers.push_back({single.units, single.holder, nullptr});
    std::stable_sort(answers.begin(), answers.end(),
                     [](const Answer& a, const Answer& b) { return a.units > b.units; });
    return answers;
  }
  // Calls fn for up to `most` holders of the group, from a word on that `turn` selects. Returns how
  // many these are.
  template <typename Function>
  size_t ForSome(const Group& group, size_t most, uint64_t turn, const Function& fn) const {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
    if (group.words == 0) return 0;
    const size_t first = (turn * kGolden >> 32) % group.words;
    size_t found = 0;
    for (size_t i = 0; i < group.words && found < most; ++i) {
      const size_t w = (first + i) % group.words;
      for (uint64_t bits = words_[group.first_word + w]; bits != 0 && found < most;
           bits &= bits - 1, ++found) {
        fn(static_cast<HolderId>(w * 64 + std::countr_zero(bits)), group.units);
      }
    }
    return found;
  }

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
