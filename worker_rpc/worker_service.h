// What every worker answers, whatever its role: its status, its tokenizer, and a look inside.
//
// Thread safety: called by gRPC from any thread; a KvEventStream for each reader of events.
// Questions to the engine run on a thread of the service's own, because they may wait for a step to
// end.
#pragma once

#include "baton/v1/worker.grpc.pb.h"
#include "engine/engine.h"
#include "rpc/concurrency_limit.h"
#include "rpc/task_pool.h"
#include "worker_rpc/served_calls.h"
#include "worker_rpc/wire_conversion.h"

namespace baton {

// The process's resident memory, in bytes; 0 where /proc does not tell.
int64_t ResidentBytes();

class WorkerService final : public v1::Worker::CallbackService {
 public:
  // `engine` must outlive the service.
  WorkerService(Engine* engine, WorkerIdentity identity);

  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context,
                                 const v1::PingRequest* request,
                                 v1::PingResponse* response) override;
  grpc::ServerUnaryReactor* GetWorkerStatus(grpc::CallbackServerContext* context,
                                            const v1::GetWorkerStatusRequest* request,
                                            v1::WorkerStatus* response) override;
  grpc::ServerUnaryReactor* GetTokenizer(grpc::CallbackServerContext* context,
                                         const v1::GetTokenizerRequest* request,
                                         v1::TokenizerDescription* response) override;
  grpc::ServerUnaryReactor* Inspect(grpc::CallbackServerContext* context,
                                    const v1::InspectRequest* request,
                                    v1::InspectResponse* response) override;
  grpc::ServerUnaryReactor* ResizePool(grpc::CallbackServerContext* context,
                                       const v1::ResizePoolRequest* request,
                                       v1::ResizePoolResponse* response) override;
  grpc::ServerUnaryReactor* ClearCache(grpc::CallbackServerContext* context,
                                       const v1::ClearCacheRequest* request,
                                       v1::ClearCacheResponse* response) override;
  grpc::ServerWriteReactor<v1::KvEventBatch>* StreamKvEvents(
      grpc::CallbackServerContext* context, const v1::StreamKvEventsRequest* request) override;
  grpc::ServerWriteReactor<v1::PullPrefixEvent>* PullPrefix(
      grpc::CallbackServerContext* context, const v1::PullPrefixRequest* request) override;
  grpc::ServerUnaryReactor* SendPrefix(grpc::CallbackServerContext* context,
                                       const v1::SendPrefixRequest* request,
                                       v1::SendPrefixResponse* response) override;

  // The address is known once the server listens.
  void SetAddress(const std::string& address);
  void SetDraining();
  // The status as it is sent to routers. Does not wait for the engine.
  v1::WorkerStatus CurrentStatus();

 private:
  Engine* const engine_;
  std::mutex mutex_;
  WorkerIdentity identity_;
  bool draining_ = false;
  ConcurrencyLimit kv_event_streams_{kMaxKvEventStreams, "readers of KV events"};
  ConcurrencyLimit pulls_{kMaxPulls, "pulls"};
  const std::shared_ptr<ConcurrencyLimit> sends_ = std::make_shared<ConcurrencyLimit>(kMaxPulls);
  TaskPool tasks_;  // last: its tasks use all of the above
};

}  // namespace baton
