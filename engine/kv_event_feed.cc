#include "engine/kv_event_feed.h"

#include <utility>

namespace baton {

void KvEventFeed::Publish(std::vector<std::string> batches) {
  if (batches.empty()) return;
  std::vector<std::shared_ptr<const std::function<void()>>> readers;
  {
    std::lock_guard lock(mutex_);
    for (std::string& batch : batches) log_.Append(std::move(batch));
    for (const auto& [subscription, on_news] : readers_) readers.push_back(on_news);
  }
  for (const auto& on_news : readers) (*on_news)();
}

uint64_t KvEventFeed::last() const {
  std::lock_guard lock(mutex_);
  return log_.last();
}

KvEventLog::Batch KvEventFeed::Find(uint64_t sequence) const {
  std::lock_guard lock(mutex_);
  return log_.Find(sequence);
}

std::shared_ptr<const KvEventSnapshot> KvEventFeed::Snapshot(
    const std::function<std::vector<std::string>()>& make) {
  std::shared_ptr<const KvEventSnapshot> snapshot = latest_snapshot_.lock();
  if (snapshot != nullptr && snapshot->sequence == last()) return snapshot;
  snapshot =
      std::make_shared<const KvEventSnapshot>(KvEventSnapshot{.sequence = last(), .parts = make()});
  latest_snapshot_ = snapshot;
  return snapshot;
}

uint64_t KvEventFeed::Subscribe(std::function<void()> on_news) {
  std::lock_guard lock(mutex_);
  readers_[next_subscription_] = std::make_shared<const std::function<void()>>(std::move(on_news));
  return next_subscription_++;
}

void KvEventFeed::Unsubscribe(uint64_t subscription) {
  std::lock_guard lock(mutex_);
  readers_.erase(subscription);
}

}  // namespace baton
