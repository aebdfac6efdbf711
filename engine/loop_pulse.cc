#include "engine/loop_pulse.h"

#include "common/str_cat.h"

namespace baton {

absl::Status LoopPulse::Check() const {
  const int64_t beat_us = beat_us_.load(std::memory_order_relaxed);
  if (beat_us == kResting) return absl::OkStatus();
  const int64_t silent_us = clock_->NowUs() - beat_us;
  if (silent_us <= longest_us_) return absl::OkStatus();
  return absl::UnavailableError(StrCat("the engine has not come on for ", silent_us / 1000,
                                       " ms; an operation takes ", longest_us_ / 1000,
                                       " ms at most (--op-stall-ms)"));
}

}  // namespace baton
