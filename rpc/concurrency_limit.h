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

// Refusal of a process that ends and takes no more calls. A client knows it by this text.
inline constexpr char kDrainingMessage[] = "this process is draining";

class ConcurrencyLimit {
 public:
  // `what` they are, for messages; outlives this.
  explicit ConcurrencyLimit(int32_t max_calls, const char* what = "requests")
      : max_calls_(max_calls), what_(what) {}

  // Holds one place until it is destroyed. The limit must outlive it.
  class Slot {
   public:
    Slot() = default;
    explicit Slot(ConcurrencyLimit* limit) : limit_(limit) {}
    Slot(Slot&& other) noexcept : limit_(other.limit_) { other.limit_ = nullptr; }
    Slot& operator=(Slot&& other) noexcept {
      std::swap(limit_, other.limit_);
      return *this;
    }
    ~Slot() {
      if (limit_ != nullptr) limit_->Leave();
    }

   private:
    ConcurrencyLimit* limit_ = nullptr;
  };

  // ResourceExhausted when full, naming the bound; Unavailable after Close.
  absl::StatusOr<Slot> Enter();
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
