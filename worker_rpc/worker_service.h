// gRPC service of every worker, independent of its role: status, tokenizer, inspection, pool size,
// role, KV events and prefix pulls.
//
// Thread safety: called by gRPC from any thread. Each reader of events has its own KvEventStream.
// Questions to the engine run on a thread of this service, because they may wait for a step to end.
#pragma once

#include <functional>

#include "baton/v1/worker.grpc.pb.h"
#include "common/clock.h"
#include "engine/engine.h"
#include "rpc/concurrency_limit.h"
#include "rpc/task_pool.h"
#include "worker_rpc/count_rate.h"
#include "worker_rpc/role_lease.h"
#include "worker_rpc/served_calls.h"
#include "worker_rpc/wire_conversion.h"

namespace baton {

// Resident memory of the process in bytes; 0 if /proc does not report it.
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
  grpc::ServerUnaryReactor* ClearChunks(grpc::CallbackServerContext* context,
                                        const v1::ClearCacheRequest* request,
                                        v1::ClearCacheResponse* response) override;
  grpc::ServerUnaryReactor* ListChunks(grpc::CallbackServerContext* context,
                                       const v1::ListChunksRequest* request,
                                       v1::ListChunksResponse* response) override;
  grpc::ServerUnaryReactor* SetRole(grpc::CallbackServerContext* context,
                                    const v1::SetRoleRequest* request,
                                    v1::SetRoleResponse* response) override;
  grpc::ServerWriteReactor<v1::KvEventBatch>* StreamKvEvents(
      grpc::CallbackServerContext* context, const v1::StreamKvEventsRequest* request) override;
  grpc::ServerWriteReactor<v1::PullPrefixEvent>* PullPrefix(
      grpc::CallbackServerContext* context, const v1::PullPrefixRequest* request) override;
  grpc::ServerUnaryReactor* SendPrefix(grpc::CallbackServerContext* context,
                                       const v1::SendPrefixRequest* request,
                                       v1::SendPrefixResponse* response) override;

  // Sets the address, which is known once the server listens.
  void SetAddress(const std::string& address);
  void SetDraining();
  struct Told {
    int32_t routers = 0;
    int32_t confirmed = 0;
  };
  // Sends the present status to every router, waits a bounded time, and returns the number of
  // routers and how many of them confirmed it.
  using TellRouters = std::function<Told()>;
  // Sets the function to call after each change of the pool's size or of the role, before the
  // caller gets its answer. Without it, the worker has no routers.
  void SetTellRouters(TellRouters tell_routers);
  // Returns the status that routers get. Does not wait for the engine.
  v1::WorkerStatus CurrentStatus();

 private:
  using ClearFunction = absl::StatusOr<int32_t> (Engine::*)(std::optional<CacheNamespace> only);
  grpc::ServerUnaryReactor* Clear(ClearFunction clear, const v1::ClearCacheRequest& request,
                                  v1::ClearCacheResponse* response);
  Told DoTellRouters();
  absl::StatusOr<v1::SetRoleResponse> ChangeRole(const v1::SetRoleRequest& request);

  Engine* const engine_;
  std::mutex mutex_;
  WorkerIdentity identity_;  // guarded by mutex_, like the next five
  bool draining_ = false;
  RoleLease role_lease_;
  TellRouters tell_routers_;
  CountRate prefill_rate_;
  CountRate decode_rate_;
  const SystemClock clock_;
  const int64_t started_us_ = clock_.NowUs();
  ConcurrencyLimit kv_event_streams_{kMaxKvEventStreams, "readers of KV events"};
  ConcurrencyLimit pulls_{kMaxPulls, "pulls"};
  const std::shared_ptr<ConcurrencyLimit> sends_ = std::make_shared<ConcurrencyLimit>(kMaxPulls);
  TaskPool tasks_;  // last member: its tasks use all of the above
};

}  // namespace baton
