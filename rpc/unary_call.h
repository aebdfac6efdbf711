// One unary call on the server whose answer comes later, from any thread, and which may be
// cancelled before.
//
// Life as of StreamWriter: Hold() at the start; whoever else holds it may answer after gRPC is
// done, and that goes nowhere. The response belongs to gRPC: it is written under the lock, before
// Finish, or not at all.
//
// Thread safety: Answer and Fail from any thread; the first counts.
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

  // REQUIRES: owned by a shared_ptr; called once, before it is handed to gRPC.
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
    const auto last = std::move(self_);  // may destroy this when it goes out of scope
  }

  Response* const response_;
  std::mutex mutex_;
  bool finished_ = false;
  std::shared_ptr<UnaryCall> self_;
};

}  // namespace baton
