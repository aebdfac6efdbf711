// A unary call whose parts live as long as the call: context, request, response and stub.
//
// Thread safety: Cancel from any thread; the answer comes once, on a gRPC thread.
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
  // Pointer to the generated asynchronous method, as in &Stub::async::Prefill, hidden in a function
  // because it is overloaded.
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
