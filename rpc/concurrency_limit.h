// Concurrency limit: counts the running calls of this process, bounds them, and waits for them at
// shutdown.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

// Message with which a process that ends refuses calls. Clients recognise it by this text.
inline constexpr char kDrainingMessage[] = "this process is draining";

class ConcurrencyLimit {
 public:
  // `what`: plural noun for the calls, for messages; must outlive this.
  explicit ConcurrencyLimit(int32_t max_calls, const char* what = "requests")
      : max_calls_(max_calls), what_(what) {}

  // Occupies one place until it is destroyed. The limit must outlive it.
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

  // ResourceExhausted, with the limit, if all places are taken. Unavailable after Close.
  absl::StatusOr<Slot> Enter();
  // Refuses all further calls to Enter.
  void Close();
  // Waits until no call is left. Returns false after `timeout_ms`.
  bool WaitUntilIdle(int64_t timeout_ms);
  int32_t active() const;
  // OK if Enter would succeed now; otherwise its error.
  absl::Status MayEnter() const;

 private:
  void Leave();
  absl::Status MayEnterLocked() const;

  const int32_t max_calls_;
  const char* const what_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  int32_t active_ = 0;
  bool closed_ = false;
};

}  // namespace baton
