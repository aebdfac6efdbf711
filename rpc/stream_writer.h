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
// Thread safety: Send and End from any thread. OnCalledOff runs at most once, on a gRPC thread,
// without the lock.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

template <typename Response>
class StreamWriter : public grpc::ServerWriteReactor<Response>,
                     public std::enable_shared_from_this<StreamWriter<Response>> {
 public:
  static constexpr size_t kMaxQueuedBytes = size_t{4} << 20;

  explicit StreamWriter(size_t max_queued) : max_queued_(max_queued) {}

  // Keeps this alive until gRPC is done with it. REQUIRES: owned by a shared_ptr; called once,
  // before it is handed to gRPC.
  void Hold() { self_ = this->shared_from_this(); }

  // Queues a message. False once the stream has ended or the client is gone.
  bool Send(Response message) {
    const size_t bytes = message.ByteSizeLong();
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
    queue_.push_back({.message = std::move(message), .bytes = bytes});
    queued_bytes_ += bytes;
    WriteNextLocked();
    return true;
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
      in_flight_ = std::move(queue_.front().message);
      queued_bytes_ -= queue_.front().bytes;
      queue_.pop_front();
      this->StartWrite(&in_flight_);
    } else if (ending_) {
      finished_ = true;
      this->Finish(end_status_);
    }
  }

  const size_t max_queued_;
  std::mutex mutex_;
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;
  Response in_flight_;  // stays until OnWriteDone
  bool writing_ = false;
  bool ending_ = false;    // no more messages are taken
  bool finished_ = false;  // Finish was called
  grpc::Status end_status_;
  std::shared_ptr<StreamWriter> self_;
};

}  // namespace baton
