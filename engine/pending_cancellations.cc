#include "engine/pending_cancellations.h"

namespace baton {

void PendingCancellations::Add(RequestHandle handle, int64_t now_us) {
  std::lock_guard lock(mutex_);
  times_us_.try_emplace(handle, now_us);
  additions_.fetch_add(1, std::memory_order_release);
}

std::optional<int64_t> PendingCancellations::Remove(RequestHandle handle) {
  std::lock_guard lock(mutex_);
  const auto found = times_us_.find(handle);
  if (found == times_us_.end()) return std::nullopt;
  const int64_t time_us = found->second;
  times_us_.erase(found);
  if (time_us == 0) return std::nullopt;
  return time_us;
}

bool PendingCancellations::Contains(RequestHandle handle) const {
  std::lock_guard lock(mutex_);
  return times_us_.contains(handle);
}

}  // namespace baton
