#include "worker_rpc/worker_service.h"

#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "rpc/status_conversion.h"
#include "rpc/unary_call.h"
#include "rpc/worker_role_name.h"
#include "worker_rpc/chunk_list.h"
#include "worker_rpc/kv_event_stream.h"
#include "worker_rpc/prefix_pull_calls.h"

namespace baton {
namespace {

constexpr size_t kMaxQueuedQuestions = 64;
constexpr double kBytesPerMib = 1 << 20;

// Runs `ask` on `tasks` and sends its result as the answer.
template <typename Response, typename Ask>
grpc::ServerUnaryReactor* AnswerLater(TaskPool& tasks, Response* response, Ask ask) {
  auto call = std::make_shared<UnaryCall<Response>>(response);
  call->Hold();
  const absl::Status posted = tasks.Post([call, ask = std::move(ask)] { call->Answer(ask()); });
  if (!posted.ok()) call->Fail(ToGrpcStatus(posted));
  return call.get();
}

constexpr char kMoreAllowed[] = "; a worker with a larger --kv-cache-max-mib allows more";

// The engine names sizes in blocks. Returns its error with those of a client that asked in MiB, and
// with what allows a larger size. `mib`: the size that the client asked for; 0: it asked in blocks.
absl::Status InUnitOf(int64_t mib, const absl::Status& refused, Engine& engine) {
  if (mib == 0) {
    if (!absl::IsInvalidArgument(refused)) return refused;
    return absl::InvalidArgumentError(absl::StrCat(refused.message(), kMoreAllowed));
  }
  const PoolSize pool = engine.Status().pool;
  const auto mib_of = [&engine](int32_t blocks) {
    return absl::StrFormat("%.1f MiB", static_cast<double>(engine.BytesOf(blocks)) / kBytesPerMib);
  };
  if (absl::IsFailedPrecondition(refused)) {
    return absl::FailedPreconditionError(
        absl::StrCat(refused.message(), ". It has ", mib_of(pool.limit)));
  }
  if (!absl::IsInvalidArgument(refused)) return refused;
  return absl::InvalidArgumentError(absl::StrCat("the size is ", mib, " MiB; must be ", mib_of(1),
                                                 " to ", mib_of(pool.reserved), kMoreAllowed));
}

}  // namespace

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size_pages = 0;
  int64_t resident_pages = 0;
  if (!(file >> size_pages >> resident_pages)) return 0;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

WorkerService::WorkerService(Engine* engine, WorkerIdentity identity)
    : engine_(engine),
      identity_(std::move(identity)),
      tasks_(/*threads=*/1, kMaxQueuedQuestions, "questions about this worker") {}

grpc::ServerUnaryReactor* WorkerService::Ping(grpc::CallbackServerContext* context,
                                              const v1::PingRequest* request, v1::PingResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(AnswerPing(*engine_, Epoch(request->epoch()))));
  return reactor;
}

grpc::ServerUnaryReactor* WorkerService::GetWorkerStatus(grpc::CallbackServerContext*,
                                                         const v1::GetWorkerStatusRequest*,
                                                         v1::WorkerStatus* response) {
  return AnswerLater(tasks_, response, [this] { return CurrentStatus(); });
}

grpc::ServerUnaryReactor* WorkerService::GetTokenizer(grpc::CallbackServerContext*,
                                                      const v1::GetTokenizerRequest*,
                                                      v1::TokenizerDescription* response) {
  return AnswerLater(tasks_, response, [this] { return TokenizerToWire(engine_->model_info()); });
}

grpc::ServerUnaryReactor* WorkerService::Inspect(grpc::CallbackServerContext*,
                                                 const v1::InspectRequest*,
                                                 v1::InspectResponse* response) {
  return AnswerLater(tasks_, response, [this] { return InspectionToWire(engine_->Inspect()); });
}

grpc::ServerUnaryReactor* WorkerService::ResizePool(grpc::CallbackServerContext*,
                                                    const v1::ResizePoolRequest* request,
                                                    v1::ResizePoolResponse* response) {
  const absl::StatusOr<int32_t> blocks =
      BlocksFromWire(*request, [this](int64_t bytes) { return engine_->BlocksIn(bytes); });
  const int64_t asked_mib = request->kv_cache_mib();
  auto call = std::make_shared<UnaryCall<v1::ResizePoolResponse>>(response);
  call->Hold();
  const absl::Status posted =
      !blocks.ok() ? blocks.status() : tasks_.Post([this, call, blocks, asked_mib] {
        const absl::StatusOr<PoolSize> size = engine_->Resize(*blocks);
        if (!size.ok())
          return call->Fail(ToGrpcStatus(InUnitOf(asked_mib, size.status(), *engine_)));
        v1::ResizePoolResponse answer = PoolSizeToWire(*size);
        answer.set_before_bytes(engine_->BytesOf(size->before));
        answer.set_limit_bytes(engine_->BytesOf(size->limit));
        answer.set_reserved_bytes(engine_->BytesOf(size->reserved));
        const Told told = DoTellRouters();
        answer.set_routers(told.routers);
        answer.set_routers_told(told.confirmed);
        call->Answer(std::move(answer));
      });
  if (!posted.ok()) call->Fail(ToGrpcStatus(posted));
  return call.get();
}

grpc::ServerUnaryReactor* WorkerService::ClearCache(grpc::CallbackServerContext*,
                                                    const v1::ClearCacheRequest* request,
                                                    v1::ClearCacheResponse* response) {
  return Clear(&Engine::ClearCache, *request, response);
}

grpc::ServerUnaryReactor* WorkerService::ClearChunks(grpc::CallbackServerContext*,
                                                     const v1::ClearCacheRequest* request,
                                                     v1::ClearCacheResponse* response) {
  return Clear(&Engine::ClearChunks, *request, response);
}

grpc::ServerUnaryReactor* WorkerService::Clear(ClearFunction clear,
                                               const v1::ClearCacheRequest& request,
                                               v1::ClearCacheResponse* response) {
  const std::optional<CacheNamespace> only = NamespaceFromWire(request, engine_->model_info());
  auto call = std::make_shared<UnaryCall<v1::ClearCacheResponse>>(response);
  call->Hold();
  const absl::Status posted = tasks_.Post([this, call, clear, only] {
    const absl::StatusOr<int32_t> freed = (engine_->*clear)(only);
    if (!freed.ok()) return call->Fail(ToGrpcStatus(freed.status()));
    v1::ClearCacheResponse answer;
    answer.set_freed_blocks(*freed);
    call->Answer(std::move(answer));
  });
  if (!posted.ok()) call->Fail(ToGrpcStatus(posted));
  return call.get();
}

grpc::ServerUnaryReactor* WorkerService::ListChunks(grpc::CallbackServerContext*,
                                                    const v1::ListChunksRequest*,
                                                    v1::ListChunksResponse* response) {
  return AnswerLater(tasks_, response, [this] {
    // The list comes first: the engine publishes its status before and after every step.
    const std::vector<ChunkCache::EntryInfo> chunks = engine_->ListChunks();
    const EngineStatus status = engine_->Status();
    std::lock_guard lock(mutex_);
    return ChunksToWire(identity_.worker_id, chunks, status);
  });
}

absl::StatusOr<v1::SetRoleResponse> WorkerService::ChangeRole(const v1::SetRoleRequest& request) {
  if (request.role() < v1::WORKER_ROLE_UNSPECIFIED || request.role() > v1::WORKER_ROLE_BOTH) {
    return absl::InvalidArgumentError(
        absl::StrCat("role is ", static_cast<int>(request.role()), "; 0 to 3 are allowed"));
  }
  std::lock_guard lock(mutex_);
  if (draining_) return absl::FailedPreconditionError("the worker is draining");
  RETURN_IF_ERROR(role_lease_.Take(request.planner(), request.lease_ms(), clock_.NowUs()));
  v1::SetRoleResponse answer;
  answer.set_before(identity_.role);
  if (request.role() != v1::WORKER_ROLE_UNSPECIFIED) identity_.role = request.role();
  answer.set_role(identity_.role);
  return answer;
}

grpc::ServerUnaryReactor* WorkerService::SetRole(grpc::CallbackServerContext*,
                                                 const v1::SetRoleRequest* request,
                                                 v1::SetRoleResponse* response) {
  auto call = std::make_shared<UnaryCall<v1::SetRoleResponse>>(response);
  call->Hold();
  const absl::Status posted = tasks_.Post([this, call, asked = v1::SetRoleRequest(*request)] {
    absl::StatusOr<v1::SetRoleResponse> answer = ChangeRole(asked);
    if (!answer.ok()) return call->Fail(ToGrpcStatus(answer.status()));
    if (answer->role() != answer->before()) {
      LOG(INFO) << "the role is " << WorkerRoleName(answer->role()) << " now, it was "
                << WorkerRoleName(answer->before());
      const Told told = DoTellRouters();
      answer->set_routers(told.routers);
      answer->set_routers_told(told.confirmed);
    }
    call->Answer(*std::move(answer));
  });
  if (!posted.ok()) call->Fail(ToGrpcStatus(posted));
  return call.get();
}

grpc::ServerWriteReactor<v1::KvEventBatch>* WorkerService::StreamKvEvents(
    grpc::CallbackServerContext*, const v1::StreamKvEventsRequest* request) {
  auto stream = std::make_shared<KvEventStream>(engine_);
  stream->Hold();
  stream->Start(kv_event_streams_, Epoch(request->epoch()), request->sequence());
  return stream.get();
}

grpc::ServerWriteReactor<v1::PullPrefixEvent>* WorkerService::PullPrefix(
    grpc::CallbackServerContext*, const v1::PullPrefixRequest* request) {
  return StartPull(engine_, *request, pulls_);
}

grpc::ServerUnaryReactor* WorkerService::SendPrefix(grpc::CallbackServerContext*,
                                                    const v1::SendPrefixRequest* request,
                                                    v1::SendPrefixResponse* response) {
  return StartSend(engine_, *request, response, sends_);
}

void WorkerService::SetAddress(const std::string& address) {
  std::lock_guard lock(mutex_);
  identity_.address = address;
}

void WorkerService::SetDraining() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

void WorkerService::SetTellRouters(TellRouters tell_routers) {
  std::lock_guard lock(mutex_);
  tell_routers_ = std::move(tell_routers);
}

WorkerService::Told WorkerService::DoTellRouters() {
  TellRouters tell;
  {
    std::lock_guard lock(mutex_);
    tell = tell_routers_;
  }
  return tell ? tell() : Told();
}

v1::WorkerStatus WorkerService::CurrentStatus() {
  const EngineStatus status = engine_->Status();
  std::lock_guard lock(mutex_);
  v1::WorkerStatus out = WorkerStatusToWire(identity_, engine_->epoch(), status, draining_);
  const int64_t now_us = clock_.NowUs();
  out.set_uptime_ms((now_us - started_us_) / 1000);
  out.set_prefill_tokens_per_second(
      static_cast<float>(prefill_rate_.Sample(now_us, status.prefill_tokens)));
  out.set_decode_tokens_per_second(
      static_cast<float>(decode_rate_.Sample(now_us, status.decode_tokens)));
  out.set_resident_bytes(ResidentBytes());
  out.set_model_name(engine_->model_info().spec.name);
  return out;
}

}  // namespace baton
