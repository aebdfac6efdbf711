// The router's end of one Decode call. It reads events and passes them to a listener until the call
// ends.
//
// Thread safety: Start and Cancel from any thread. gRPC threads call the listener, one call at a
// time. The stream releases the listener after OnDecodeEnd.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "baton/v1/worker.grpc.pb.h"
#include "router/request_flow.h"

namespace baton {

class DecodeListener {
 public:
  virtual ~DecodeListener() = default;
  virtual void OnDecodeEvent(int32_t attempt, v1::DecodeEvent event) = 0;
  // The last call.
  virtual void OnDecodeEnd(int32_t attempt, WorkerNumber worker, absl::Status status) = 0;
};

class DecodeStream final : public grpc::ClientReadReactor<v1::DecodeEvent>,
                           public std::enable_shared_from_this<DecodeStream> {
 public:
  DecodeStream(std::unique_ptr<v1::DecodeWorker::Stub> stub, v1::DecodeRequest request,
               int32_t attempt, WorkerNumber worker, std::shared_ptr<DecodeListener> listener);

  // The object keeps itself alive until the call has ended.
  void Start(std::chrono::system_clock::time_point deadline);
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  const std::unique_ptr<v1::DecodeWorker::Stub> stub_;
  std::unique_ptr<v1::DecodeRequest> request_;  // until the worker has answered
  const int32_t attempt_;
  const WorkerNumber worker_;
  std::shared_ptr<DecodeListener> listener_;
  grpc::ClientContext context_;
  v1::DecodeEvent event_;
  std::shared_ptr<DecodeStream> self_;
};

}  // namespace baton
