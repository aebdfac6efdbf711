// The server's side of a response stream: messages are queued from any thread and written one after
// the other.
//
// The queue is bounded in messages and, because one message may carry much (text, log
// probabilities), in bytes on the wire: a stream whose client reads too slowly ends with
// RESOURCE_EXHAUSTED instead of growing without limit. Streams of tokens pass a bound in messages
// that max_tokens already implies, so that only a broken producer meets it. A message of any size
// is taken when nothing is queued before it.
//
// Life: Hold() when the call starts; the writer keeps itself alive until gRPC has reported OnDone,
// and whoever else holds a shared_ptr (an engine's sink, a downstream call) may outlive that: what
// it sends then goes nowhere.
//
// A client that takes nothing, or too little, is found by a StreamWatchdog, where the stream is in
// one.
//
// Thread safety: Send and End from any thread. OnCalledOff runs without the lock, on a gRPC
// thread at most once, and where CallOff is called.
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

  // `context`: of the call, or nullptr where nobody abandons it.
  explicit StreamWriter(size_t max_queued, grpc::CallbackServerContext* context = nullptr)
      : max_queued_(max_queued), context_(context) {}

  // Keeps this alive until gRPC is done with it. REQUIRES: owned by a shared_ptr; called once,
  // before it is handed to gRPC.
  void Hold() { self_ = this->shared_from_this(); }

  // Queues a message. False once the stream has ended or the client is gone.
  bool Send(Response message) {
    const size_t bytes = BytesOnTheWire(message);
    std::lock_guard lock(mutex_);
    if (ending_ || finished_) return false;
    if (queue_.size() >= max_queued_ ||
        (!queue_.empty() && queued_bytes_ + bytes > kMaxQueuedBytes)) {
      const std::string reason =
          absl::StrCat("the client left ", queue_.size(), " messages of ", queued_bytes_,
                       " bytes unread; at most ", max_queued_, " messages and ", kMaxQueuedBytes,
                       " bytes wait for it");
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
    if (context_ != nullptr) context_->TryCancel();  // OnCancel follows, on a thread of gRPC's
  }

  void CallOff(absl::Status status) override {
    End(ToGrpcStatus(status));
    OnCalledOff();
  }

  // Ends the stream behind what is queued. The first call counts.
  void End(grpc::Status status) {
    std::lock_guard lock(mutex_);
    if (ending_ || finished_) return;
    EndLocked(std::move(status));
  }

 protected:
  // The client cancelled, its deadline passed or its connection broke. Release what the request
  // holds.
  virtual void OnCalledOff() = 0;
  // All that was queued has been written; more may be sent. On a gRPC thread, without the lock.
  virtual void OnDrained() {}
  // gRPC is done with the call, however it ended. Last function called on this by gRPC.
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
    const auto last = std::move(self_);  // may destroy this when it goes out of scope
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
  std::chrono::steady_clock::time_point in_flight_since_;  // when it was queued
  bool writing_ = false;
  std::chrono::steady_clock::time_point busy_since_;  // of the write or the end under way
  bool ending_ = false;                               // no more messages are taken
  bool finished_ = false;                             // Finish was called
  bool done_ = false;                                 // gRPC is through with the call
  grpc::Status end_status_;
  std::shared_ptr<StreamWriter> self_;
};

}  // namespace baton
