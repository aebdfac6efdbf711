// Set of requests with a cancellation that the engine loop has not processed yet. A running step
// reads it to stop unneeded work. It also keeps when each cancellation came.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "engine/request.h"

namespace baton {

class PendingCancellations {
 public:
  // `now_us`: time of the cancellation; 0: unknown.
  void Add(RequestHandle handle, int64_t now_us = 0);
  // Call once the loop has processed the cancellation. Returns its time, if that is known.
  std::optional<int64_t> Remove(RequestHandle handle);
  bool Contains(RequestHandle handle) const;
  // Counter that grows before each Add returns. An unchanged value means that nothing was added.
  // Takes no lock.
  uint64_t additions() const { return additions_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_map<RequestHandle, int64_t> times_us_;  // guarded by mutex_
  std::atomic<uint64_t> additions_{0};
};

}  // namespace baton
