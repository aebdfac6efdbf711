#include "rpc/call_deadline.h"

#include <grpc/support/time.h>

#include <algorithm>

#include "rpc/channel.h"

namespace baton {
namespace {

constexpr int64_t kUsPerMs = 1000;

}  // namespace

CallDeadline::CallDeadline(int64_t left_us, const Clock* clock)
    : clock_(clock),
      at_us_(left_us >= kForEverUs ? kForEverUs : clock->NowUs() + std::max(left_us, -kForEverUs)) {
}

int64_t CallDeadline::LeftUs() const {
  return at_us_ == kForEverUs ? kForEverUs : at_us_ - clock_->NowUs();
}

CallDeadline CallDeadline::Within(int64_t timeout_ms) const {
  const int64_t within_us = std::clamp<int64_t>(timeout_ms, 0, kMaxTimeoutMs) * kUsPerMs;
  return {std::min(LeftUs(), within_us), clock_};
}

std::chrono::system_clock::time_point CallDeadline::ForCall() const {
  if (at_us_ == kForEverUs) return std::chrono::system_clock::time_point::max();
  return DeadlineIn((LeftUs() + kUsPerMs - 1) / kUsPerMs);
}

int64_t MicrosecondsLeft(const grpc::CallbackServerContext& context) {
  // Uses a clock that does not move when the machine's clock is set.
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return CallDeadline::kForEverUs;
  }
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  constexpr int64_t kUsPerSecond = 1'000'000;
  const int64_t most_seconds = CallDeadline::kForEverUs / kUsPerSecond;
  return std::clamp<int64_t>(left.tv_sec, -most_seconds, most_seconds) * kUsPerSecond +
         left.tv_nsec / 1000;
}

}  // namespace baton
