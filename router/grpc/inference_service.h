// gRPC service of the public API.
//
// Thread safety: gRPC calls it from any thread.
#pragma once

#include <functional>
#include <utility>

#include "baton/v1/inference.grpc.pb.h"
#include "router/grpc/generate_call.h"
#include "router/grpc/latest_heartbeats.h"
#include "router/refused_workers.h"
#include "rpc/stream_watchdog.h"

namespace baton {

// Generate and Tokenize take raw bytes and parse them, because clients' text may not be UTF-8. The
// error can then name the field (rpc/raw_message.h).
using InferenceMethods =
    v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::WithRawCallbackMethod_Tokenize<
        v1::Inference::WithCallbackMethod_Detokenize<v1::Inference::WithCallbackMethod_GetModel<
            v1::Inference::WithCallbackMethod_GetStatus<v1::Inference::Service>>>>>;

class InferenceService final : public InferenceMethods {
 public:
  // All pointers must outlive every call; the limit tells when the last call is gone.
  InferenceService(const GenerateHost& host, ConcurrencyLimit* limit, StreamWatchdog* streams,
                   const LatestHeartbeats* heartbeats, const RefusedWorkers* refused);

  // Sets the source of GetStatusResponse.role_plan. Call it before the first request.
  void set_role_plan(std::function<v1::RolePlan()> role_plan) { role_plan_ = std::move(role_plan); }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

  // Returns what GetStatus answers. From any thread.
  v1::GetStatusResponse CurrentStatus() const;

 private:
  // Returns the client of a call of `method` ("Tokenize"), and removes the key from the request.
  template <typename Request>
  absl::StatusOr<Caller> TakeClient(const grpc::CallbackServerContext& context, const char* method,
                                    Request& request) const;
  // Runs `work` on a text thread and answers with its status. Request and response live until then,
  // even if the call is cancelled.
  grpc::ServerUnaryReactor* RunOnTextThread(grpc::CallbackServerContext* context, size_t bytes,
                                            std::function<absl::Status()> work);
  absl::Status DoTokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse& response);
  absl::Status DoDetokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse& response);
  absl::Status DoGetModel(v1::GetModelResponse& response);

  const GenerateHost host_;
  ConcurrencyLimit* const limit_;
  StreamWatchdog* const streams_;
  const LatestHeartbeats* const heartbeats_;
  const RefusedWorkers* const refused_;
  std::function<v1::RolePlan()> role_plan_;
};

}  // namespace baton
