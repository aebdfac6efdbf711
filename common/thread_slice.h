// Sets a thread's time slice for the Linux scheduler (EEVDF; Linux 6.12 and later, without
// privileges: sched(7), and sched_runtime in sched_setattr(2)).
//
// A thread that wakes with a short slice takes the processor at once from a thread with a long
// slice. Its share of the processor time stays the same. Short slices suit threads that wake, work
// for some microseconds and sleep again. Such threads move KV or talk to peers while other threads
// compute. A new thread inherits its creator's slice.
//
// Thread safety: each function concerns the thread that calls it.
#pragma once

#include <cstdint>
#include <optional>

namespace baton {

inline constexpr int64_t kShortSliceNs = 100'000;  // the kernel's minimum

// Returns false if the kernel has no slices, the thread's scheduling policy has none, or a sandbox
// forbids the call. Nothing has changed then, and only delays are longer.
bool AskForShortSlice();

// Returns nullopt if the kernel does not report the slice.
std::optional<int64_t> SliceNs();

// While this object lives, new threads of this thread start with a short slice. The destructor
// restores this thread's own slice.
class ShortSliceForNewThreads {
 public:
  ShortSliceForNewThreads();
  ~ShortSliceForNewThreads();
  ShortSliceForNewThreads(const ShortSliceForNewThreads&) = delete;
  ShortSliceForNewThreads& operator=(const ShortSliceForNewThreads&) = delete;

 private:
  const std::optional<int64_t> before_ns_;
  const bool changed_;
};

}  // namespace baton
