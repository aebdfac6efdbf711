// Watchdog for response streams: ends streams of clients that read nothing, or too slowly. The
// connection of such a client may be alive and answer pings. Flow control would then block the
// stream's next message forever, and the request would keep its place.
//
// A client that reads one message now and then never counts as stalled. So the age of its oldest
// unread message is limited too. The watchdog knows all streams, so it can also end those that
// outlast the grace period of a shutdown.
//
// Thread safety: every function may be called from any thread.
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
  // Start of the current write or end that gRPC has not completed; `now` if there is none.
  virtual std::chrono::steady_clock::time_point StalledSince(
      std::chrono::steady_clock::time_point now) = 0;
  // Time at which the oldest unsent message was queued; `now` if there is none.
  virtual std::chrono::steady_clock::time_point BehindSince(
      std::chrono::steady_clock::time_point now) = 0;
  // Ends the stream as if the client were gone.
  virtual void Abandon() = 0;
  // Ends the stream with this status, which the client still gets.
  virtual void CallOff(absl::Status status) = 0;
};

class StreamWatchdog {
 public:
  // The limit for BehindSince is this factor times `patience`.
  static constexpr int kBehindFactor = 10;

  explicit StreamWatchdog(std::chrono::milliseconds patience) : patience_(patience) {}

  // Watches a stream until it is destroyed. Does not keep it alive.
  void Add(const std::shared_ptr<WatchedStream>& stream) {
    std::lock_guard lock(mutex_);
    streams_.push_back(stream);
  }

  // Abandons stalled streams. Call it periodically. Returns the number of abandoned streams.
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

  // Ends all streams with `status`. Returns their number.
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
