// Requests whose cancellation is on its way to the engine's loop: what a step that is running can
// see of it.
//
// Thread safety: every function, from any thread.
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
  // The loop has taken it.
  void Remove(RequestHandle handle);
  bool Contains(RequestHandle handle) const;
  // Grows with every Add, and before Add returns: while it is the same, nothing was added. Cheap.
  uint64_t additions() const { return additions_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  absl::flat_hash_set<RequestHandle> handles_;  // guarded by mutex_
  std::atomic<uint64_t> additions_{0};
};

}  // namespace baton
