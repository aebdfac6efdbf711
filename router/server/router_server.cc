#include "router/server/router_server.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/entropy.h"
#include "common/status_macros.h"
#include "router/grpc/metrics_targets.h"
#include "router/router_metrics.h"
#include "rpc/tls_credentials.h"

namespace baton {
namespace {

// Calls of cancelled requests to workers end within a round trip; they wait for no work.
constexpr int64_t kLastCallsMs = 10'000;
// Time for clients to read how their answers ended.
constexpr int64_t kLastWordsMs = 1000;
constexpr int64_t kDrainTickMs = 100;

// Largest size of a request: its text, or a million token ids of up to five bytes each, plus the
// fields around it.
constexpr int64_t kLeastReceiveBytes = 5 << 20;
constexpr int64_t kFramingBytes = 1 << 20;

// Clients choose the hashed text. With random seeds, they cannot aim at one place of the index.
KeySeeds RandomKeySeeds() { return {.first = EntropyBits() | 1, .second = EntropyBits() | 1}; }

}  // namespace

RouterServer::RouterServer(const RouterServerOptions& options, std::unique_ptr<ApiKeys> api_keys)
    : options_(options),
      api_keys_(std::move(api_keys)),
      core_(options_.router, &clock_, RandomKeySeeds()),
      request_log_(options_.router.request_log_lines, &clock_, &metrics_),
      channels_(FleetCredentials(options_.server.tls, CallerRole::kWorker)),
      limit_(options_.server.max_active_requests),
      streams_(std::chrono::milliseconds(options_.router.client_stall_ms)),
      fetcher_(&core_, &channels_),
      subscriber_(&core_.index(), &channels_, &clock_, options_.router.max_workers),
      registry_service_(&core_, &heartbeats_, &refused_, &fetcher_, &log_, &metrics_),
      inference_service_(Host(), &limit_, &streams_, &heartbeats_, &refused_),
      ticked_us_(clock_.NowUs()) {
  core_.set_metrics(&metrics_);
}

GenerateHost RouterServer::Host() {
  return {.options = &options_.router,
          .core = &core_,
          .channels = &channels_,
          .failure_detector = &failure_detector_,
          .text_tasks = &text_tasks_,
          .clock = &clock_,
          .log = &log_,
          .request_log = &request_log_,
          .metrics = &metrics_,
          .api_keys = api_keys_.get()};
}

absl::StatusOr<std::unique_ptr<RouterServer>> RouterServer::Start(
    const RouterServerOptions& options) {
  RETURN_IF_ERROR(CheckRouterSecurity(options));
  std::unique_ptr<ApiKeys> api_keys;
  if (!options.api_keys.empty()) {
    ASSIGN_OR_RETURN(api_keys, ApiKeys::Open(options.api_keys));
    LOG_IF(WARNING, !options.server.tls.any())
        << "with --api-keys and without --tls-cert, the gRPC port takes no requests of clients: "
           "keys are not read without encryption";
    LOG_IF(WARNING, options.server.plaintext && !options.http.tls.any())
        << "API keys reach the HTTP port without encryption, because of --plaintext";
  }
  std::unique_ptr<RouterServer> out(new RouterServer(options, std::move(api_keys)));
  RpcServerOptions server = options.server;
  server.max_receive_bytes = static_cast<int32_t>(
      std::max(options.router.max_prompt_bytes, kLeastReceiveBytes) + kFramingBytes);
  ASSIGN_OR_RETURN(
      out->server_,
      RpcServer::Start(server, {&out->registry_service_, &out->inference_service_},
                       {v1::Registry::service_full_name(), v1::Inference::service_full_name()}));
  out->prober_ = std::make_unique<WorkerProber>(
      &out->core_, &out->channels_, &out->failure_detector_, options.router.worker_silence_ms);
  if (!options.http.listen.empty()) {
    ASSIGN_OR_RETURN(out->http_edge_,
                     HttpEdge::Start(out->options_.http, out->Host(), &out->limit_));
  }
  if (!options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(
        out->observation_server_,
        ObservationServer::Start(options.metrics_listen, "baton-router", &out->metrics_));
    out->observation_.emplace(out->observation_server_.get(), out->Source());
  }
  return out;
}

RouterServer::~RouterServer() {
  Shutdown();
  observation_.reset();
}

ObservationSource RouterServer::Source() {
  ObservationSource source;
  source.alive = [this] { return Alive(); };
  source.ready = [this] { return Ready(); };
  source.refresh = [this](MetricSet& metrics) {
    SetRouterMetrics({.counters = core_.counters(),
                      .waiting = core_.waiting(),
                      .index = core_.index().Status(),
                      .predicted_units = core_.predicted_units(),
                      .workers = core_.Workers()},
                     metrics);
    if (http_edge_ != nullptr) metrics.Set(Metric::kIgnoredFields, http_edge_->ignored_fields());
  };
  source.targets = [this] {
    return MetricsTargetsToJson(observation_server_->ReachableAddress(options_.router.advertise),
                                heartbeats_.MetricsTargets());
  };
  return source;
}

absl::Status RouterServer::Alive() const {
  const int64_t silent_us = clock_.NowUs() - ticked_us_.load(std::memory_order_relaxed);
  if (silent_us <= kLongestTickUs) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the router's main loop has not run for ",
                                             silent_us / 1000, " ms, the limit is ",
                                             kLongestTickUs / 1000, " ms"));
}

absl::Status RouterServer::Ready() {
  if (draining_) return absl::UnavailableError("the router is shutting down");
  if (core_.ready()) return absl::OkStatus();
  return absl::UnavailableError(
      "the router waits for workers, for their model or for their cached prefixes");
}

bool RouterServer::Tick() {
  ticked_us_.store(clock_.NowUs(), std::memory_order_relaxed);
  if (api_keys_ != nullptr) api_keys_->Refresh();
  core_.Tick();
  for (const FleetChange& change : core_.TakeChanges()) {
    log_.Changed(change);
    metrics_.Add(Metric::kFleetChanges, 1, change.kind);
  }
  if (const int stalled = streams_.Tick(std::chrono::steady_clock::now()); stalled > 0) {
    LOG(WARNING) << stalled << " answers ended: their clients read nothing for "
                 << options_.router.client_stall_ms << " ms, or fell behind by "
                 << StreamWatchdog::kBehindFactor << " times that time (--client-stall-ms)";
    metrics_.Add(Metric::kClientStalls, stalled);
  }
  if (http_edge_ != nullptr) http_edge_->Tick();
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
  draining_ = true;
  server_->SetServing(false);
  if (http_edge_ != nullptr) http_edge_->Drain();
  limit_.Close();
  if (!WaitUntilIdle(options_.server.drain_ms)) {
    const absl::Status status = absl::UnavailableError(
        absl::StrCat("the router at ", server_->address(),
                     " is shutting down, and the answer did not end within its --drain-ms of ",
                     options_.server.drain_ms, " ms"));
    streams_.CallOff(status);
    if (http_edge_ != nullptr) http_edge_->CallOff(status);
    limit_.WaitUntilIdle(kLastWordsMs);
  }
  if (http_edge_ != nullptr) http_edge_->Shutdown(kLastWordsMs);
  server_->Shutdown(0);
  limit_.WaitUntilIdle(kLastCallsMs);
}

bool RouterServer::WaitUntilIdle(int64_t timeout_ms) {
  const int64_t until_us = clock_.NowUs() + timeout_ms * 1000;
  for (;;) {
    const int64_t left_ms = (until_us - clock_.NowUs()) / 1000;
    if (limit_.WaitUntilIdle(std::clamp<int64_t>(left_ms, 0, kDrainTickMs))) return true;
    if (left_ms <= 0) return false;
    if (http_edge_ != nullptr) http_edge_->Tick();
  }
}

}  // namespace baton
