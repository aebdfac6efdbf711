// Unary client call that owns its context, request, response and stub until the answer has arrived.
//
// Thread safety: Cancel may be called from any thread. `done` runs once, on a gRPC thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "rpc/status_conversion.h"

namespace baton {

template <typename Stub, typename Request, typename Response>
class ClientUnaryCall {
 public:
  using Done = std::function<void(absl::Status, Response)>;
  // Calls the generated asynchronous method, for example Stub::async::Prefill. It is a function
  // because these methods are overloaded.
  using Begin = std::function<void(Stub&, grpc::ClientContext*, const Request*, Response*,
                                   std::function<void(grpc::Status)>)>;

  static std::shared_ptr<ClientUnaryCall> Start(std::unique_ptr<Stub> stub, Request request,
                                                std::chrono::system_clock::time_point deadline,
                                                const Begin& begin, Done done) {
    std::shared_ptr<ClientUnaryCall> call(new ClientUnaryCall);
    call->stub_ = std::move(stub);
    call->request_ = std::move(request);
    call->context_.set_deadline(deadline);
    begin(*call->stub_, &call->context_, &call->request_, &call->response_,
          [call, done = std::move(done)](const grpc::Status& status) {
            call->request_ =
                Request();  // frees the prompt; the caller may keep the call for longer
            done(FromGrpcStatus(status), std::move(call->response_));
          });
    return call;
  }

  void Cancel() { context_.TryCancel(); }

 private:
  ClientUnaryCall() = default;

  std::unique_ptr<Stub> stub_;
  grpc::ClientContext context_;
  Request request_;
  Response response_;
};

}  // namespace baton
