// The gRPC edge of a decode worker: a Decode stream is a request to the engine, and whatever ends
// one ends the other.
//
// A client that reads slowly is given time: at most one message a token is queued, so max_tokens
// bounds what waits for it, as long as that stays below rpc/stream_writer.h's bound in bytes.
//
// Thread safety: called by gRPC from any thread.
#pragma once

#include "baton/v1/worker.grpc.pb.h"
#include "engine/engine.h"
#include "rpc/concurrency_limit.h"
#include "worker_rpc/worker_server.h"

namespace baton {

class DecodeService final : public v1::DecodeWorker::CallbackService {
 public:
  // Both must outlive the service.
  DecodeService(Engine* engine, ConcurrencyLimit* limit);

  grpc::ServerWriteReactor<v1::DecodeEvent>* Decode(grpc::CallbackServerContext* context,
                                                    const v1::DecodeRequest* request) override;
  grpc::ServerUnaryReactor* PrefillLocally(grpc::CallbackServerContext* context,
                                           const v1::PrefillLocallyRequest* request,
                                           v1::PrefillLocallyResponse* response) override;

 private:
  Engine* const engine_;
  ConcurrencyLimit* const limit_;
};

// What a worker of this role runs.
RoleService DecodeRoleService();

}  // namespace baton
