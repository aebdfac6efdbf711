// Counts the calls that are running in this process: the bound on them, and the way to wait for
// them at shutdown.
//
// Thread safety: every function, from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

class CallGate {
 public:
  // `what` they are, for messages; outlives this.
  explicit CallGate(int32_t max_calls, const char* what = "requests")
      : max_calls_(max_calls), what_(what) {}

  // Holds one place until it is destroyed. The gate must outlive it.
  class Pass {
   public:
    Pass() = default;
    explicit Pass(CallGate* gate) : gate_(gate) {}
    Pass(Pass&& other) noexcept : gate_(other.gate_) { other.gate_ = nullptr; }
    Pass& operator=(Pass&& other) noexcept {
      std::swap(gate_, other.gate_);
      return *this;
    }
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }

   private:
    CallGate* gate_ = nullptr;
  };

  // ResourceExhausted when full, naming the bound; Unavailable after Close.
  absl::StatusOr<Pass> Enter();
  // From now on nobody enters.
  void Close();
  // True when the last call has left within the time.
  bool WaitUntilIdle(int64_t timeout_ms);
  int32_t active() const;

 private:
  void Leave();

  const int32_t max_calls_;
  const char* const what_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  int32_t active_ = 0;
  bool closed_ = false;
};

}  // namespace baton
