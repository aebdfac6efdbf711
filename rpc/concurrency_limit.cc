#include "rpc/concurrency_limit.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {

absl::StatusOr<ConcurrencyLimit::Slot> ConcurrencyLimit::Enter() {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(MayEnterLocked());
  ++active_;
  return Slot(this);
}

absl::Status ConcurrencyLimit::MayEnter() const {
  std::lock_guard lock(mutex_);
  return MayEnterLocked();
}

absl::Status ConcurrencyLimit::MayEnterLocked() const {
  if (closed_) return absl::UnavailableError(kDrainingMessage);
  if (active_ < max_calls_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("this process has its maximum of ", max_calls_, " active ", what_));
}

void ConcurrencyLimit::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

bool ConcurrencyLimit::WaitUntilIdle(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                        [this] { return active_ == 0; });
}

int32_t ConcurrencyLimit::active() const {
  std::lock_guard lock(mutex_);
  return active_;
}

void ConcurrencyLimit::Leave() {
  // Notify under the lock: the waiting thread may destroy the limit as soon as it runs.
  std::lock_guard lock(mutex_);
  if (--active_ == 0) idle_.notify_all();
}

}  // namespace baton
