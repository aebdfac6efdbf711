// How long a thread may run before the kernel looks for another that is due, which also says how
// soon it gets a processor when it wakes: a thread with a short slice takes the processor from one
// with a long slice at once, and its share of the time stays the same (EEVDF; Linux 6.12 and later,
// for anybody: sched(7) and sched_setattr(2), sched_runtime).
//
// What wakes, does some microseconds of work and sleeps again asks for a short one: threads that
// move KV or speak to peers beside threads that compute. A new thread has its creator's.
//
// Thread safety: each function is about the thread that calls it.
#pragma once

#include <cstdint>
#include <optional>

namespace baton {

inline constexpr int64_t kShortSliceNs = 100'000;  // the least that the kernel takes

// False where the kernel knows no slices, the thread has a scheduling policy without them, or a
// sandbox forbids it: nothing has changed then, and nothing but delays is different.
bool AskForShortSlice();

// Nothing where the kernel does not tell.
std::optional<int64_t> SliceNs();

// Threads that are started while it lives ask for a short slice; that of this thread is as before
// when it ends.
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
