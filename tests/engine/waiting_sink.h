// Sink for engines with their own thread: the test can wait for the end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/engine/recording_sinks.h"

namespace baton {

class WaitingSink final : public RequestSink {
 public:
  // `on_tokens` runs on the engine thread.
  explicit WaitingSink(std::function<void()> on_tokens = nullptr)
      : recorder_(record_), on_tokens_(std::move(on_tokens)) {}

  void OnTicket(const TransferTicket& ticket) override {
    const std::lock_guard lock(mutex_);
    recorder_.OnTicket(ticket);
    changed_.notify_all();
  }
  void OnTokens(TokenOutput output) override {
    {
      const std::lock_guard lock(mutex_);
      recorder_.OnTokens(std::move(output));
      changed_.notify_all();
    }
    if (on_tokens_) on_tokens_();
  }
  void OnFinish(FinishInfo info) override {
    const std::lock_guard lock(mutex_);
    recorder_.OnFinish(std::move(info));
    changed_.notify_all();
  }
  void OnError(absl::Status status) override {
    const std::lock_guard lock(mutex_);
    recorder_.OnError(std::move(status));
    changed_.notify_all();
  }

  // Returns the record once `ready` is true or a minute has passed.
  SinkRecord WaitFor(const std::function<bool(const SinkRecord&)>& ready) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] { return ready(*record_); });
    SinkRecord seen = *record_;
    // Copies of a status share one text. Its refcount is inside Abseil, where the thread sanitizer
    // sees no synchronisation. So return a status with a text of its own.
    if (seen.error) seen.error = absl::Status(seen.error->code(), seen.error->message());
    return seen;
  }
  SinkRecord WaitForEnd() {
    return WaitFor([](const SinkRecord& record) { return record.ended(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::shared_ptr<SinkRecord> record_ = std::make_shared<SinkRecord>();
  RecordingSink recorder_;
  const std::function<void()> on_tokens_;
};

// A sink whose first tokens block the engine, so that its request is under way until GoOn.
class HoldingSink {
 public:
  ~HoldingSink() { GoOn(); }
  const std::shared_ptr<WaitingSink>& sink() { return sink_; }
  // Waits until the engine is blocked.
  void WaitUntilHeld() { held_.get_future().wait(); }
  void GoOn() {
    if (!std::exchange(gone_on_, true)) go_on_.set_value();
  }

 private:
  bool first_ = true;  // of the engine thread
  bool gone_on_ = false;
  std::promise<void> held_, go_on_;
  const std::shared_ptr<WaitingSink> sink_ = std::make_shared<WaitingSink>([this] {
    if (!std::exchange(first_, false)) return;
    held_.set_value();
    go_on_.get_future().wait();
  });
};

}  // namespace baton
