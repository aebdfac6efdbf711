#include "engine/pending_cancellations.h"

namespace baton {

void PendingCancellations::Add(RequestHandle handle) {
  std::lock_guard lock(mutex_);
  handles_.insert(handle);
  additions_.fetch_add(1, std::memory_order_release);
}

void PendingCancellations::Remove(RequestHandle handle) {
  std::lock_guard lock(mutex_);
  handles_.erase(handle);
}

bool PendingCancellations::Contains(RequestHandle handle) const {
  std::lock_guard lock(mutex_);
  return handles_.contains(handle);
}

}  // namespace baton
