// When a call must have ended, on the steady clock: a deadline that is kept as a time of day moves
// when somebody sets the machine's clock. What gRPC is told is made anew for every call, from what
// is left then.
//
// Thread safety: a value; const functions from any thread where the clock's are.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>

#include "common/clock.h"

namespace baton {

class CallDeadline {
 public:
  // `left_us` from now; none at all where that is kForEverUs. REQUIRES: clock outlives this.
  CallDeadline(int64_t left_us, const Clock* clock);

  static constexpr int64_t kForEverUs = int64_t{1} << 60;

  bool Passed() const { return LeftUs() <= 0; }
  // Negative once it has passed; kForEverUs where there is none.
  int64_t LeftUs() const;
  // This, or `timeout_ms` from now when that is sooner.
  CallDeadline Within(int64_t timeout_ms) const;
  // For a call that starts now. time_point::max(), which gRPC takes for none, where there is none.
  std::chrono::system_clock::time_point ForCall() const;

 private:
  const Clock* clock_;
  int64_t at_us_;  // kForEverUs: never
};

// Microseconds until the client's deadline; CallDeadline::kForEverUs where it set none.
int64_t MicrosecondsLeft(const grpc::CallbackServerContext& context);

}  // namespace baton
