// Whose block is next on a link, among the transfers that have something to send there.
//
// The rule: the highest priority first; equals take turns block by block, in the order they came,
// so that a long one does not hold up a short one. Of every kOthersEvery blocks one goes to the
// priority that has gone without for the longest: each of n priorities that wait has a block within
// kOthersEvery × n, so none starves, and the highest keeps at least 7 of 8.
//
// Invariant: a transfer waits at most once.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>

namespace baton {

class SendQueue {
 public:
  static constexpr uint64_t kOthersEvery = 8;

  // Behind its equals. REQUIRES: it does not wait.
  void Add(uint64_t transfer, int32_t priority);
  // Ignored for one that does not wait.
  void Remove(uint64_t transfer, int32_t priority);
  bool empty() const { return levels_.empty(); }
  // Takes out who is next; Add it again when it has more. REQUIRES: !empty().
  uint64_t Take();

 private:
  struct Level {
    uint64_t since = 0;  // blocks that had gone when it had its last one, or began to wait
    std::list<uint64_t> transfers;
  };
  using Levels = std::map<int32_t, Level, std::greater<>>;

  Levels::iterator LongestWithout();

  Levels levels_;  // by priority; none is empty
  uint64_t blocks_ = 0;
};

}  // namespace baton
