#include "engine/loop_watchdog.h"

#include "common/str_cat.h"

namespace baton {

absl::Status LoopWatchdog::Check() const {
  const int64_t fed_us = fed_us_.load(std::memory_order_relaxed);
  if (fed_us == kDisarmed) return absl::OkStatus();
  const int64_t silent_us = clock_->NowUs() - fed_us;
  if (silent_us <= longest_us_) return absl::OkStatus();
  return absl::UnavailableError(StrCat("the engine loop has made no progress for ",
                                       silent_us / 1000, " ms; the limit for an operation is ",
                                       longest_us_ / 1000, " ms (--op-stall-ms)"));
}

}  // namespace baton
