// One lookup's walk along the runs. It tracks which holders still have everything so far, and where
// the others stopped.
//
// Many remaining holders are a set of bits. From the first run with few holders on, they are a
// short list.
//
// Thread safety: used by one thread. A run may change while it is read. The caller checks the run's
// header afterwards and discards the walk if it changed.
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
  // Empties `match`, then writes the answer to it. REQUIRES: both outlive this object.
  PrefixWalk(const HolderTable& holders, PrefixMatch& match);

  // Processes the next `count` units: the positions from `offset` on of a run with inline holders,
  // or of a wide run. Returns false if no holder is left. REQUIRES: count >= 1.
  bool StepInline(const uint64_t* run, int entries, uint32_t offset, uint32_t count);
  bool StepWide(const RunHolders::WideView& wide, uint32_t offset, uint32_t count);
  // The remaining holders have everything up to here but not the next unit.
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
