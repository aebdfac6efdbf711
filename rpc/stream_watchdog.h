// Finds response streams whose client takes nothing any more, or too little. Its connection may be
// alive and answer pings: flow control holds such a stream's next message back for ever, and with
// it the place of its request. A client that reads one message now and then would never count as
// stalled, so the age of its oldest unread message is limited too. The watch knows all streams, and
// so ends those that outlast a shutdown's patience.
//
// Thread safety: every function, from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace baton {

class WatchedStream {
 public:
  virtual ~WatchedStream() = default;
  // Since when something it gave to gRPC has not left; `now` when nothing waits.
  virtual std::chrono::steady_clock::time_point StalledSince(
      std::chrono::steady_clock::time_point now) = 0;
  // Since when the oldest message that has not left has waited, queued or not; `now` when none
  // does.
  virtual std::chrono::steady_clock::time_point BehindSince(
      std::chrono::steady_clock::time_point now) = 0;
  // Ends it as if the client were gone.
  virtual void Abandon() = 0;
  // Ends it with this status, as its last word to the client.
  virtual void CallOff(absl::Status status) = 0;
};

class StreamWatchdog {
 public:
  // A client may be behind by so many times the patience.
  static constexpr int kBehindFactor = 10;

  explicit StreamWatchdog(std::chrono::milliseconds patience) : patience_(patience) {}

  // Until it is destroyed; it is not kept alive.
  void Add(const std::shared_ptr<WatchedStream>& stream) {
    std::lock_guard lock(mutex_);
    streams_.push_back(stream);
  }

  // Call now and then. Returns how many it abandoned.
  int Tick(std::chrono::steady_clock::time_point now) {
    int abandoned = 0;
    for (const std::shared_ptr<WatchedStream>& stream : Alive()) {
      if (now - stream->StalledSince(now) < patience_ &&
          now - stream->BehindSince(now) < kBehindFactor * patience_) {
        continue;
      }
      stream->Abandon();
      ++abandoned;
    }
    return abandoned;
  }

  // Returns how many there were.
  int CallOff(const absl::Status& status) {
    const std::vector<std::shared_ptr<WatchedStream>> streams = Alive();
    for (const std::shared_ptr<WatchedStream>& stream : streams) stream->CallOff(status);
    return static_cast<int>(streams.size());
  }

 private:
  std::vector<std::shared_ptr<WatchedStream>> Alive() {
    std::vector<std::shared_ptr<WatchedStream>> alive;
    std::lock_guard lock(mutex_);
    std::erase_if(streams_, [](const auto& stream) { return stream.expired(); });
    for (const std::weak_ptr<WatchedStream>& stream : streams_) {
      if (auto held = stream.lock()) alive.push_back(std::move(held));
    }
    return alive;
  }

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<WatchedStream>> streams_;
};

}  // namespace baton
