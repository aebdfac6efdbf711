// The gRPC edge of pulls (engine/prefix_pull.h): both ends of a prefix on its way from one worker's
// cache to another's.
//
// The stream of a pull and the engine's part in it end together, whoever ends first. A send goes on
// by itself: its call has ended by then.
//
// Thread safety: called by gRPC from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "baton/v1/worker.grpc.pb.h"
#include "engine/engine.h"
#include "rpc/concurrency_limit.h"

namespace baton {

// `engine` and `limit` must outlive the calls.
grpc::ServerWriteReactor<v1::PullPrefixEvent>* StartPull(Engine* engine,
                                                         const v1::PullPrefixRequest& request,
                                                         ConcurrencyLimit& limit);
grpc::ServerUnaryReactor* StartSend(Engine* engine, const v1::SendPrefixRequest& request,
                                    v1::SendPrefixResponse* response,
                                    const std::shared_ptr<ConcurrencyLimit>& limit);

}  // namespace baton
