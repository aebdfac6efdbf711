// Bounded record of the latest allocations of a KV cache, for `inspect`. It is off by default.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/strong_int.h"

namespace baton {

// Blocks that a sequence took or returned, and the free blocks after it.
struct AllocationEvent {
  enum class Kind : uint8_t { kMatch, kReserve, kInsert, kEvict, kRelease };
  int64_t time_us;
  Kind kind;
  SequenceId sequence;
  int32_t tokens;  // committed tokens, or tokens matched
  int32_t blocks;  // blocks taken or returned
  int32_t free_after;
  int32_t group = 0;  // KV group
};
inline constexpr size_t kTraceEvents = 4096;

class AllocationTrace {
 public:
  // Records nothing unless `records`. REQUIRES: the clock outlives this.
  AllocationTrace(bool records, const Clock* clock) : records_(records), clock_(clock) {}

  bool records() const { return records_; }
  // Sets the event's time.
  void Add(AllocationEvent event) {
    if (!records_) return;
    if (events_.size() == 2 * kTraceEvents) {
      events_.erase(events_.begin(), events_.begin() + kTraceEvents);
    }
    event.time_us = clock_->NowUs();
    events_.push_back(event);
  }
  // Oldest first: at least the last kTraceEvents events, at most twice as many.
  const std::vector<AllocationEvent>& events() const { return events_; }

 private:
  const bool records_;
  const Clock* const clock_;
  std::vector<AllocationEvent> events_;
};

}  // namespace baton
