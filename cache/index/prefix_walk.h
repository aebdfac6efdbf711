// One look-up's way along the runs: who still holds everything so far, and who stopped where.
//
// While many are left they are a set of bits; from the first run with few holders on, a short list.
//
// Thread safety: belongs to one thread. What it reads of a run may change meanwhile: the caller
// checks the run's head afterwards and throws the walk away.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cache/index/holder_table.h"
#include "cache/index/prefix_match.h"
#include "cache/index/run_holders.h"

namespace baton {

class PrefixWalk {
 public:
  // Empties `match`, into which the answer goes. All must outlive this.
  PrefixWalk(const HolderTable& holders, PrefixMatch& match);

  // The next `count` units are the positions from `offset` on of a run with a few holders, or a
  // wide one. False when nobody is left. REQUIRES: count >= 1.
  bool StepInline(const uint64_t* run, int entries, uint32_t offset, uint32_t count);
  bool StepWide(const RunHolders::WideView& wide, uint32_t offset, uint32_t count);
  // Whoever is left holds everything up to here and not the next unit.
  void End();

 private:
  enum class Left { kEverybody, kBits, kList };

  bool IsLeft(HolderId holder) const;
  void Stop(HolderId holder, int64_t units);
  // The holders in `words` stop at `at_`.
  void StopAll(const std::vector<uint64_t>& words);
  bool StepListWide(const RunHolders::WideView& wide, uint32_t offset, uint32_t count);

  const HolderTable& holders_;
  PrefixMatch& match_;
  Left left_ = Left::kEverybody;
  std::array<HolderId, RunHead::kMaxInline> list_;
  int list_size_ = 0;
  int64_t at_ = 0;
};

}  // namespace baton
