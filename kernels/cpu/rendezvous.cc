#include "kernels/cpu/rendezvous.h"

#include "kernels/cpu/pause.h"

namespace baton {

bool Rendezvous::Arrive(absl::FunctionRef<void()> work) {
  uint32_t seen = state_.load(std::memory_order_acquire);
  if ((seen & kBroken) != 0) return false;
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_) {
    // Fails only if the barrier was broken. From here on, no other thread leaves the round.
    if (!state_.compare_exchange_strong(seen, seen | kWorking, std::memory_order_acq_rel)) {
      return false;
    }
    work();
    arrived_.store(0, std::memory_order_relaxed);  // published by the next line
    state_.fetch_add(kRound - kWorking, std::memory_order_acq_rel);
    state_.notify_all();
    return true;
  }
  uint32_t now = state_.load(std::memory_order_acquire);
  for (int spin = 0; spin < spins_ && !Ended(now, seen); ++spin) {
    Pause();
    now = state_.load(std::memory_order_acquire);
  }
  while (!Ended(now, seen)) {
    state_.wait(now, std::memory_order_acquire);
    now = state_.load(std::memory_order_acquire);
  }
  return Completed(now, seen);
}

void Rendezvous::Break() {
  state_.fetch_or(kBroken, std::memory_order_acq_rel);
  state_.notify_all();
}

}  // namespace baton
