// Barrier for the threads of a group. The last thread to arrive does some work for all, while the
// others wait. The barrier can be broken.
//
// Invariants:
// 1. All threads of a round agree whether it was completed.
// 2. No thread leaves a round while the work for it is done. A Break then ends the next round.
//
// Thread safety: Break is safe from any thread. `members` threads call Arrive.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/functional/function_ref.h"

namespace baton {

class Rendezvous {
 public:
  // `spins`: times that a thread looks before it sleeps.
  Rendezvous(int32_t members, int spins) : members_(members), spins_(spins) {}

  // Blocks until all members have arrived and the last one has called `work`; then returns true.
  // Returns false, without a call, if the barrier is or gets broken first. What members did before
  // Arrive is visible to `work`, and what it did is visible to all members after it.
  bool Arrive(absl::FunctionRef<void()> work);
  // Breaks this round and all later ones.
  void Break();

 private:
  // Bits of `state_`; the other bits count the rounds.
  static constexpr uint32_t kBroken = 1;
  static constexpr uint32_t kWorking = 2;
  static constexpr uint32_t kRound = 4;

  // Returns true if a thread that waits in the round of `seen` may go on.
  static bool Ended(uint32_t now, uint32_t seen) {
    return Completed(now, seen) || (now & (kBroken | kWorking)) == kBroken;
  }
  static bool Completed(uint32_t now, uint32_t seen) { return now / kRound != seen / kRound; }

  const int32_t members_;
  const int spins_;
  alignas(64) std::atomic<int32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> state_{0};
};

}  // namespace baton
