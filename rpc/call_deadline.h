// Deadline of a call, on the steady clock. A deadline kept as a time of day would move when the
// machine's clock is set. ForCall() converts the remaining time to gRPC's clock anew for every
// call.
//
// Thread safety: a value; const functions may be called from any thread if the clock allows that.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>

#include "common/clock.h"

namespace baton {

class CallDeadline {
 public:
  // `left_us`: time from now; kForEverUs: no deadline. `clock` must outlive this.
  CallDeadline(int64_t left_us, const Clock* clock);

  static constexpr int64_t kForEverUs = int64_t{1} << 60;

  bool Passed() const { return LeftUs() <= 0; }
  // Remaining time: negative once the deadline has passed; kForEverUs if there is none.
  int64_t LeftUs() const;
  // Returns the earlier of this deadline and `timeout_ms` from now.
  CallDeadline Within(int64_t timeout_ms) const;
  // Deadline for a call that starts now. Without a deadline it is time_point::max(), which gRPC
  // treats as none.
  std::chrono::system_clock::time_point ForCall() const;

 private:
  const Clock* clock_;
  int64_t at_us_;  // kForEverUs: never
};

// Microseconds until the client's deadline; CallDeadline::kForEverUs if it set none.
int64_t MicrosecondsLeft(const grpc::CallbackServerContext& context);

}  // namespace baton
