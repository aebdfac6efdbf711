// The gRPC edge of the public API.
//
// Thread safety: called by gRPC from any thread.
#pragma once

#include <functional>

#include "baton/v1/inference.grpc.pb.h"
#include "router/generate_call.h"
#include "router/heartbeat_board.h"
#include "router/refused_workers.h"

namespace baton {

class InferenceService final : public v1::Inference::CallbackService {
 public:
  // All that is pointed to must outlive every call; the gate tells when the last one is gone.
  InferenceService(const GenerateHost& host, CallGate* gate, const HeartbeatBoard* board,
                   const RefusedWorkers* refused);

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override {
    return Begin(context, *request, absl::OkStatus());
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  // `parsed`: whether the request is one.
  grpc::ServerWriteReactor<v1::GenerateResponse>* Begin(grpc::CallbackServerContext* context,
                                                        const v1::GenerateRequest& request,
                                                        absl::Status parsed);
  // Answers with the status of `work` when a text thread has run it. Request and response live
  // until then, even those of a call that was cancelled.
  grpc::ServerUnaryReactor* RunOnTextThread(grpc::CallbackServerContext* context, size_t bytes,
                                            std::function<absl::Status()> work);
  absl::Status DoTokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse& response);
  absl::Status DoDetokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse& response);
  absl::Status DoGetModel(v1::GetModelResponse& response);

  const GenerateHost host_;
  CallGate* const gate_;
  const HeartbeatBoard* const board_;
  const RefusedWorkers* const refused_;
};

}  // namespace baton
