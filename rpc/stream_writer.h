// Server side of a response stream: queues messages from any thread and writes them in order.
//
// The queue is bounded in messages, and in bytes on the wire because one message may carry much
// text or many log probabilities. If the client reads too slowly, the stream ends with
// RESOURCE_EXHAUSTED. Token streams set a message bound that max_tokens already implies, so only a
// faulty producer reaches it. A message of any size is accepted if the queue is empty.
//
// Lifetime: call Hold() when the call starts. The writer then stays alive until gRPC has reported
// OnDone. Other owners of a shared_ptr (an engine's sink, a downstream call) may outlive that;
// messages that they send are dropped.
//
// A StreamWatchdog, if the stream is added to one, ends streams of clients that read nothing or too
// slowly.
//
// Thread safety: Send and End on any thread. OnCalledOff runs without the lock: at most once on a
// gRPC thread, and on each thread that calls CallOff.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/status_conversion.h"
#include "rpc/stream_watchdog.h"

namespace baton {

template <typename Message>
size_t BytesOnTheWire(const Message& message) {
  return message.ByteSizeLong();
}
inline size_t BytesOnTheWire(const grpc::ByteBuffer& message) { return message.Length(); }

// `Response`: a generated message, or grpc::ByteBuffer for a raw method.
template <typename Response>
class StreamWriter : public grpc::ServerWriteReactor<Response>,
                     public WatchedStream,
                     public std::enable_shared_from_this<StreamWriter<Response>> {
 public:
  static constexpr size_t kMaxQueuedBytes = size_t{4} << 20;

  // `context`: context of the call, needed for Abandon; may be null otherwise.
  explicit StreamWriter(size_t max_queued, grpc::CallbackServerContext* context = nullptr)
      : max_queued_(max_queued), context_(context) {}

  // Keeps this object alive until gRPC is done with it. REQUIRES: a shared_ptr owns it; called
  // once, before it is passed to gRPC.
  void Hold() { self_ = this->shared_from_this(); }

  // Queues a message. Returns false if the stream has ended or the client is gone.
  bool Send(Response message) {
    const size_t bytes = BytesOnTheWire(message);
    std::lock_guard lock(mutex_);
    if (ending_ || finished_) return false;
    if (queue_.size() >= max_queued_ ||
        (!queue_.empty() && queued_bytes_ + bytes > kMaxQueuedBytes)) {
      const std::string reason = absl::StrCat(
          "the client has not read ", queue_.size(), " messages of ", queued_bytes_,
          " bytes; the limit is ", max_queued_, " messages and ", kMaxQueuedBytes, " bytes");
      ClearLocked();
      EndLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, reason));
      return false;
    }
    queue_.push_back(
        {.message = std::move(message), .bytes = bytes, .since = std::chrono::steady_clock::now()});
    queued_bytes_ += bytes;
    WriteNextLocked();
    return true;
  }

  std::chrono::steady_clock::time_point StalledSince(
      std::chrono::steady_clock::time_point now) override {
    std::lock_guard lock(mutex_);
    return (writing_ || finished_) && !done_ ? busy_since_ : now;
  }

  std::chrono::steady_clock::time_point BehindSince(
      std::chrono::steady_clock::time_point now) override {
    std::lock_guard lock(mutex_);
    return writing_ && !done_ ? in_flight_since_ : now;
  }

  void Abandon() override {
    std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();  // gRPC then calls OnCancel on its own thread
  }

  void CallOff(absl::Status status) override {
    End(ToGrpcStatus(status));
    OnCalledOff();
  }

  // Ends the stream after the queued messages. Only the first call has an effect.
  void End(grpc::Status status) {
    std::lock_guard lock(mutex_);
    if (ending_ || finished_) return;
    EndLocked(std::move(status));
  }

 protected:
  // The client cancelled, its deadline passed or its connection broke. Implementations release the
  // request's resources.
  virtual void OnCalledOff() = 0;
  // All queued messages are written; more may be sent. Runs on a gRPC thread, without the lock.
  virtual void OnDrained() {}
  // gRPC is done with the call, for any reason. This is gRPC's last call on this object.
  virtual void OnStreamDone() {}

 private:
  struct Queued {
    Response message;
    size_t bytes = 0;
    std::chrono::steady_clock::time_point since;
  };

  void OnWriteDone(bool ok) final {
    std::unique_lock lock(mutex_);
    writing_ = false;
    if (!ok) ClearLocked();  // the stream is broken; OnCancel follows
    WriteNextLocked();
    const bool drained = ok && !writing_ && !ending_;
    lock.unlock();
    if (drained) OnDrained();
  }

  void OnCancel() final {
    OnCalledOff();
    std::lock_guard lock(mutex_);
    ClearLocked();
    if (!ending_) EndLocked(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the client"));
    WriteNextLocked();
  }

  void OnDone() final {
    {
      std::lock_guard lock(mutex_);
      context_ = nullptr;  // gRPC destroys it
      done_ = true;
    }
    OnStreamDone();
    const auto last = std::move(self_);  // may destroy this object at the end of the scope
  }

  void ClearLocked() {
    queue_.clear();
    queued_bytes_ = 0;
  }

  void EndLocked(grpc::Status status) {
    ending_ = true;
    end_status_ = std::move(status);
    WriteNextLocked();
  }

  void WriteNextLocked() {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = true;
      busy_since_ = std::chrono::steady_clock::now();
      in_flight_ = std::move(queue_.front().message);
      in_flight_since_ = queue_.front().since;
      queued_bytes_ -= queue_.front().bytes;
      queue_.pop_front();
      this->StartWrite(&in_flight_);
    } else if (ending_) {
      finished_ = true;
      busy_since_ = std::chrono::steady_clock::now();
      this->Finish(end_status_);
    }
  }

  const size_t max_queued_;
  std::mutex mutex_;
  grpc::CallbackServerContext* context_;  // until OnDone
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;
  Response in_flight_;                                     // stays until OnWriteDone
  std::chrono::steady_clock::time_point in_flight_since_;  // when in_flight_ was queued
  bool writing_ = false;
  std::chrono::steady_clock::time_point busy_since_;  // start of the current write or Finish
  bool ending_ = false;                               // no more messages are accepted
  bool finished_ = false;                             // Finish was called
  bool done_ = false;                                 // OnDone was called
  grpc::Status end_status_;
  std::shared_ptr<StreamWriter> self_;
};

}  // namespace baton
