#include "router/kv_event_subscriptions.h"

#include <algorithm>

#include "absl/status/statusor.h"

namespace baton {
namespace {

constexpr int64_t kFirstRetryUs = 100'000;
constexpr int64_t kLastRetryUs = 2'000'000;

}  // namespace

void KvEventSubscriptions::Tick(const std::vector<WorkerRecord>& workers, int64_t now_us,
                                const Open& open, const Cancel& cancel) {
  for (auto& [number, subscription] : subscriptions_) subscription.present = false;
  for (const WorkerRecord& worker : workers) {
    if (!worker.report.prefix_cache) continue;
    Subscription& subscription = subscriptions_[worker.number];
    subscription.present = true;
    const bool due = now_us >= subscription.retry_at_us;
    if (subscription.open || subscription.cannot_tell || !due) continue;
    const absl::StatusOr<KvEventPosition> position = index_->Position(worker.number);
    if (!position.ok()) continue;  // the index learns of the worker with its next tick
    subscription.open = true;
    open(worker, *position);
  }
  std::erase_if(subscriptions_, [&](const auto& entry) {
    if (entry.second.present) return false;
    if (entry.second.open) cancel(entry.first);
    return true;
  });
}

KvEventSubscriptions::End KvEventSubscriptions::OnEnd(WorkerNumber worker,
                                                      const absl::Status& status, bool progressed,
                                                      int64_t now_us) {
  const auto it = subscriptions_.find(worker);
  if (it == subscriptions_.end() || !it->second.open) return End::kForgotten;
  Subscription& subscription = it->second;
  subscription.open = false;
  if (absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status)) {
    subscription.cannot_tell = true;
    index_->CannotTell(worker, status);
    return End::kCannotTell;
  }
  const bool is_first = progressed || subscription.backoff_us == 0;
  subscription.backoff_us =
      is_first ? kFirstRetryUs : std::min(2 * subscription.backoff_us, kLastRetryUs);
  subscription.retry_at_us = now_us + subscription.backoff_us;
  index_->Interrupted(worker, status);
  return End::kRetried;
}

}  // namespace baton
