// Queue of the transfers that have blocks to send on one link. It decides which transfer sends the
// next block.
//
// The highest priority goes first. Transfers of equal priority take turns block by block
// (round-robin), so a long transfer does not delay a short one. To prevent starvation, one of every
// kOthersEvery blocks goes to the priority that has waited longest. So with n waiting priorities,
// each sends a block within kOthersEvery × n blocks. The highest priority keeps at least 7 of 8
// blocks.
//
// Invariant: a transfer is queued at most once.
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

  // Queues a transfer behind those of equal priority. REQUIRES: it is not queued.
  void Add(uint64_t transfer, int32_t priority);
  // Ignored if the transfer is not queued.
  void Remove(uint64_t transfer, int32_t priority);
  bool empty() const { return levels_.empty(); }
  // Returns the transfer that Take would return. REQUIRES: !empty().
  uint64_t Next() const;
  // Removes and returns the next transfer. Add it again if it has more blocks. REQUIRES: !empty().
  uint64_t Take();

 private:
  struct Level {
    uint64_t since = 0;  // value of blocks_ when this level last sent a block or was created
    std::list<uint64_t> transfers;
  };
  using Levels = std::map<int32_t, Level, std::greater<>>;

  // Returns the priority whose turn it is to send block number `block`. REQUIRES: !empty().
  Levels::const_iterator LevelOf(uint64_t block) const;

  Levels levels_;  // by priority; no level is empty
  // Blocks taken so far.
  uint64_t blocks_ = 0;
};

}  // namespace baton
