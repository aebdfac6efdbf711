// State machine for a worker's registration at one router: when to send a heartbeat, and how the
// answer affects the next one.
//
// A worker sends a heartbeat when it starts, then every second, and a goodbye when it leaves. It
// retries sooner if the router does not answer. A refusal counts as an answer: the worker
// continues, because the reason may be temporary (for example, the router still knows an older
// incarnation of the worker). A restarted router learns of the worker from the next heartbeat.
//
// Pure: the caller sends and waits. Worker processes and the simulation both use it.
//
// Thread safety: none; one object per router.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace baton {

inline constexpr int64_t kHeartbeatIntervalMs = 1000;
inline constexpr int64_t kHeartbeatRetryMs = 200;  // after a heartbeat without an answer
inline constexpr int64_t kHeartbeatTimeoutMs = 1000;
inline constexpr int64_t kGoodbyeTimeoutMs = 500;

class Registration {
 public:
  struct Heartbeat {
    bool leaving = false;
    int64_t timeout_ms = 0;
  };
  // Returns the heartbeat to send now.
  Heartbeat Next();

  // What to do after a heartbeat was answered or failed.
  struct Outcome {
    // Time until the next heartbeat; Leave ends it early. None: the worker has left.
    std::optional<int64_t> pause_ms;
    // Set if there is news for the log: the reason why the router does not have this worker, or
    // empty if it has the worker again. A reason that differs from the last one only in numbers is
    // not news: such numbers only count how long ago something happened.
    std::optional<std::string> trouble;
  };
  // `call`: status of the RPC. `accepted`: OK, or the reason for the router's refusal.
  Outcome OnAnswer(const absl::Status& call, const absl::Status& accepted);

  // Makes the next heartbeat the last one.
  void Leave() { leaving_ = true; }

 private:
  bool leaving_ = false;
  bool said_goodbye_ = false;
  std::string trouble_;  // the last reported trouble
};

}  // namespace baton
