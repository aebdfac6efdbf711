// gRPC calls for prefix pulls (engine/prefix_pull.h), on the receiver and on the source.
//
// A pull's stream and its engine request end together, whichever ends first. A send continues after
// its call has ended.
//
// Thread safety: called by gRPC from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "baton/v1/worker.grpc.pb.h"
#include "engine/engine.h"
#include "rpc/concurrency_limit.h"

namespace baton {

// `engine` and `limit` must outlive the calls. A call that `limit` refuses answers with that error.
grpc::ServerWriteReactor<v1::PullPrefixEvent>* StartPull(Engine* engine,
                                                         const v1::PullPrefixRequest& request,
                                                         ConcurrencyLimit& limit);
grpc::ServerUnaryReactor* StartSend(Engine* engine, const v1::SendPrefixRequest& request,
                                    v1::SendPrefixResponse* response,
                                    const std::shared_ptr<ConcurrencyLimit>& limit);

}  // namespace baton
