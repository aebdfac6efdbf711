#include "router/grpc/router_server.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/entropy.h"
#include "common/status_macros.h"

namespace baton {
namespace {

// Calls of cancelled requests to workers end within a round trip; nothing waits for a worker.
constexpr int64_t kLastCallsMs = 10'000;
// For clients to read how their answers ended.
constexpr int64_t kLastWordsMs = 1000;

// What a request may measure: its text, or a million token ids of up to five bytes, and the fields
// around it.
constexpr int64_t kLeastReceiveBytes = 5 << 20;
constexpr int64_t kFramingBytes = 1 << 20;

// Clients choose what is hashed: nobody may be able to aim at one place of the index.
KeySeeds RandomKeySeeds() { return {.first = EntropyBits() | 1, .second = EntropyBits() | 1}; }

}  // namespace

RouterServer::RouterServer(const RouterServerOptions& options)
    : options_(options),
      core_(options_.router, &clock_, RandomKeySeeds()),
      limit_(options_.server.max_active_requests),
      streams_(std::chrono::milliseconds(options_.router.client_stall_ms)),
      fetcher_(&core_, &channels_),
      subscriber_(&core_.index(), &channels_, &clock_, options_.router.max_workers),
      registry_service_(&core_, &heartbeats_, &refused_, &fetcher_, &log_),
      inference_service_({.options = &options_.router,
                          .core = &core_,
                          .channels = &channels_,
                          .failure_detector = &failure_detector_,
                          .text_tasks = &text_tasks_,
                          .clock = &clock_,
                          .log = &log_},
                         &limit_, &streams_, &heartbeats_, &refused_) {}

absl::StatusOr<std::unique_ptr<RouterServer>> RouterServer::Start(
    const RouterServerOptions& options) {
  std::unique_ptr<RouterServer> out(new RouterServer(options));
  RpcServerOptions server = options.server;
  server.max_receive_bytes = static_cast<int32_t>(
      std::max(options.router.max_prompt_bytes, kLeastReceiveBytes) + kFramingBytes);
  ASSIGN_OR_RETURN(
      out->server_,
      RpcServer::Start(server, {&out->registry_service_, &out->inference_service_},
                       {v1::Registry::service_full_name(), v1::Inference::service_full_name()}));
  out->prober_ = std::make_unique<WorkerProber>(
      &out->core_, &out->channels_, &out->failure_detector_, options.router.worker_silence_ms);
  return out;
}

RouterServer::~RouterServer() { Shutdown(); }

bool RouterServer::Tick() {
  core_.Tick();
  for (const FleetChange& change : core_.TakeChanges()) log_.Changed(change);
  if (const int stalled = streams_.Tick(std::chrono::steady_clock::now()); stalled > 0) {
    LOG(WARNING) << stalled << " answers given up: their clients took nothing for "
                 << options_.router.client_stall_ms << " ms, or were "
                 << StreamWatchdog::kBehindFactor << " times as long behind (--client-stall-ms)";
  }
  fetcher_.MaybeFetch();
  const std::vector<WorkerRecord> workers = core_.Workers();
  log_.CompareRooms(workers);
  channels_.KeepOnly(workers);
  heartbeats_.KeepOnly(workers);
  subscriber_.Tick(workers);
  if (const bool ready = core_.ready(); ready != serving_) {
    serving_ = ready;
    server_->SetServing(ready);
  }
  return serving_;
}

void RouterServer::Shutdown() {
  if (shut_down_ || server_ == nullptr) return;
  shut_down_ = true;
  server_->SetServing(false);
  limit_.Close();
  if (!limit_.WaitUntilIdle(options_.server.drain_ms)) {
    streams_.CallOff(absl::UnavailableError(
        absl::StrCat("the router at ", server_->address(),
                     " ends, and the answer was not done within its --drain-ms of ",
                     options_.server.drain_ms, " ms")));
    limit_.WaitUntilIdle(kLastWordsMs);
  }
  server_->Shutdown(0);
  limit_.WaitUntilIdle(kLastCallsMs);
}

}  // namespace baton
