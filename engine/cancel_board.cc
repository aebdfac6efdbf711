#include "engine/cancel_board.h"

namespace baton {

void CancelBoard::Add(RequestHandle handle) {
  std::lock_guard lock(mutex_);
  handles_.insert(handle);
  additions_.fetch_add(1, std::memory_order_release);
}

void CancelBoard::Remove(RequestHandle handle) {
  std::lock_guard lock(mutex_);
  handles_.erase(handle);
}

bool CancelBoard::Contains(RequestHandle handle) const {
  std::lock_guard lock(mutex_);
  return handles_.contains(handle);
}

}  // namespace baton
