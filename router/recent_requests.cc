#include "router/recent_requests.h"

#include <algorithm>
#include <utility>

namespace baton {

void RecentRequests::Add(RecentRequest request) {
  std::lock_guard lock(mutex_);
  requests_.push_front(std::move(request));
  if (requests_.size() > kMost) requests_.pop_back();
}

std::vector<RecentRequest> RecentRequests::All() const {
  std::lock_guard lock(mutex_);
  return {requests_.begin(), requests_.end()};
}

std::vector<Hash128> RecentRequests::Kept(std::span<const Hash128> hashes) {
  const auto kept = hashes.first(std::min(hashes.size(), RecentRequest::kMostHashes));
  return {kept.begin(), kept.end()};
}

}  // namespace baton
