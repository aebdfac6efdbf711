// Server side of a unary call that is answered later, from any thread, and may be cancelled before.
//
// Lifetime: as StreamWriter. Call Hold() at the start. Other owners may answer after gRPC is done;
// such an answer is dropped. The response belongs to gRPC, so it is written only under the lock and
// before Finish.
//
// Thread safety: Answer and Fail on any thread; only the first call has an effect.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <utility>

namespace baton {

template <typename Response>
class UnaryCall : public grpc::ServerUnaryReactor,
                  public std::enable_shared_from_this<UnaryCall<Response>> {
 public:
  explicit UnaryCall(Response* response) : response_(response) {}

  // Keeps this object alive until gRPC is done with it. REQUIRES: a shared_ptr owns it; called
  // once, before it is passed to gRPC.
  void Hold() { self_ = this->shared_from_this(); }

  void Answer(Response response) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    *response_ = std::move(response);
    this->Finish(grpc::Status::OK);
  }

  void Fail(grpc::Status status) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    this->Finish(std::move(status));
  }

 protected:
  // The client cancelled, its deadline passed or its connection broke.
  virtual void OnCalledOff() {}

 private:
  void OnCancel() final {
    OnCalledOff();
    Fail(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the client"));
  }
  void OnDone() final {
    const auto last = std::move(self_);  // may destroy this object at the end of the scope
  }

  Response* const response_;
  std::mutex mutex_;
  bool finished_ = false;
  std::shared_ptr<UnaryCall> self_;
};

}  // namespace baton
