// ClientStream without a connection. It keeps what it receives.
//
// Thread safety: every function, from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "router/grpc/client_stream.h"

namespace baton {

class FakeClientStream final : public ClientStream {
 public:
  // Accepts `most_events` events. One more ends the stream, as a client that does not read would.
  explicit FakeClientStream(size_t most_events = 1000) : most_events_(most_events) {}

  bool Send(const v1::GenerateResponse& event) override {
    std::lock_guard lock(mutex_);
    if (end_) return false;
    if (events_.size() < most_events_) {
      events_.push_back(event);
      changed_.notify_all();
      return true;
    }
    end_ = absl::ResourceExhaustedError("too much is unread");
    changed_.notify_all();
    return false;
  }

  void End(const absl::Status& status) override {
    std::lock_guard lock(mutex_);
    ++ends_;
    if (!end_) end_ = status;
    changed_.notify_all();
  }

  // Waits until at least `count` events have come. Returns false after kPatience.
  bool HasEvents(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return events_.size() >= count; });
  }
  // Waits for the end. Returns Unknown if none comes within kPatience.
  absl::Status AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return end_.has_value(); });
    return end_.value_or(absl::UnknownError("the stream has not ended"));
  }
  std::vector<v1::GenerateResponse> events() {
    std::lock_guard lock(mutex_);
    return events_;
  }
  int ends() {
    std::lock_guard lock(mutex_);
    return ends_;
  }

 private:
  static constexpr std::chrono::seconds kPatience{20};

  const size_t most_events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::GenerateResponse> events_;
  std::optional<absl::Status> end_;
  int ends_ = 0;  // calls of End
};

}  // namespace baton
