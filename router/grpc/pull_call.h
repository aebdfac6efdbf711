// One prefix pull at the router over gRPC. router/pull_flow.h decides its steps.
//
// If a pull fails, the waiting request's prompt is computed instead. So a pull has a deadline of
// its own: a few times its estimated duration.
//
// Thread safety: Start and Cancel from any thread. `done` runs once, on a gRPC thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "baton/v1/worker.grpc.pb.h"
#include "router/pull_flow.h"
#include "rpc/call_deadline.h"
#include "rpc/client_unary_call.h"

namespace baton {

struct PullOutcome : PullFlow::Outcome {
  v1::PulledPrefix prefix;  // empty unless the status is OK
};

class PullCall final : public grpc::ClientReadReactor<v1::PullPrefixEvent>,
                       public std::enable_shared_from_this<PullCall> {
 public:
  using Done = std::function<void(const PullOutcome&)>;

  PullCall(const std::shared_ptr<grpc::Channel>& receiver,
           const std::shared_ptr<grpc::Channel>& source, v1::PullPrefixRequest request, Done done);

  // Starts the pull with the timeout request.timeout_ms, but at most until `deadline`. The object
  // keeps itself alive until the end.
  void Start(const CallDeadline& deadline);
  void Cancel() { context_.TryCancel(); }

 private:
  using SendCall = ClientUnaryCall<v1::Worker::Stub, v1::SendPrefixRequest, v1::SendPrefixResponse>;

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  bool OnTicket();
  void AskSource(const v1::PullTicket& ticket);
  void OnSourceAnswered(const absl::Status& status);

  const std::unique_ptr<v1::Worker::Stub> receiver_;
  std::unique_ptr<v1::Worker::Stub> source_;  // moved out when the source is asked
  v1::PullPrefixRequest request_;             // empty after the end
  Done done_;
  std::optional<CallDeadline> deadline_;  // set by Start
  grpc::ClientContext context_;
  v1::PullPrefixEvent event_;
  v1::PulledPrefix prefix_;
  std::shared_ptr<SendCall> send_;
  std::mutex mutex_;
  PullFlow flow_;  // guarded by mutex_
  std::shared_ptr<PullCall> self_;
};

}  // namespace baton
