// Set of requests with a cancellation that the engine loop has not processed yet. A running step
// reads it to stop unneeded work.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "absl/container/flat_hash_set.h"
#include "engine/request.h"

namespace baton {

class PendingCancellations {
 public:
  void Add(RequestHandle handle);
  // Call once the loop has processed the cancellation.
  void Remove(RequestHandle handle);
  bool Contains(RequestHandle handle) const;
  // Counter that grows before each Add returns. An unchanged value means that nothing was added.
  // Takes no lock.
  uint64_t additions() const { return additions_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_set<RequestHandle> handles_;  // guarded by mutex_
  std::atomic<uint64_t> additions_{0};
};

}  // namespace baton
