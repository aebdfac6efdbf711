#include "kernels/cpu/cpu_event.h"

#include <algorithm>

namespace baton {

bool CpuEvent::Done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->passed == state_->recorded;
}

void CpuEvent::Wait() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->passed == state_->recorded; });
}

std::function<void()> CpuEvent::Begin() {
  const std::lock_guard lock(state_->mutex);
  return [state = state_, record = ++state_->recorded] {
    {
      const std::lock_guard passing(state->mutex);
      state->passed = std::max(state->passed, record);
    }
    state->changed.notify_all();
  };
}

}  // namespace baton
