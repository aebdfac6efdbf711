// How a worker keeps itself registered at one router: when it sends a heartbeat, and what the
// answer means for the next one.
//
// A worker beats at once when it starts, then every second, and says goodbye when it leaves. A
// router that does not answer is asked again sooner. A refusal is an answer: the worker keeps
// beating, because the reason may pass (a router that knows another incarnation of it for a while).
// A restarted router learns of the worker with the next heartbeat.
//
// Pure: the caller sends and waits. Worker processes and the simulation both run this.
//
// Thread safety: none; one for each router.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace baton {

inline constexpr int64_t kHeartbeatIntervalMs = 1000;
inline constexpr int64_t kHeartbeatRetryMs = 200;  // after a heartbeat that did not get through
inline constexpr int64_t kHeartbeatTimeoutMs = 1000;
inline constexpr int64_t kGoodbyeTimeoutMs = 500;

class Registration {
 public:
  struct Heartbeat {
    bool leaving = false;
    int64_t timeout_ms = 0;
  };
  // What to send now.
  Heartbeat Next();

  // What to do once a heartbeat was answered or failed.
  struct Outcome {
    // Until the next heartbeat; Leave ends it. None: the worker has left.
    std::optional<int64_t> pause_ms;
    // News for the log: why the router does not have this worker, or empty, if it has it again.
    // Reasons that differ in their numbers alone are no news: they tell how long ago something was.
    std::optional<std::string> trouble;
  };
  // `call`: whether the answer came. `accepted`: OK, or the reason of the router's refusal.
  Outcome OnAnswer(const absl::Status& call, const absl::Status& accepted);

  // The next heartbeat is the last.
  void Leave() { leaving_ = true; }

 private:
  bool leaving_ = false;
  bool said_goodbye_ = false;
  std::string trouble_;  // as last told
};

}  // namespace baton
