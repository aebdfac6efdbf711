#include "router/server/router_server.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/address_options.h"
#include "common/check.h"
#include "common/entropy.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "router/grpc/metrics_targets.h"
#include "router/grpc/status_json.h"
#include "router/router_metrics.h"
#include "router/shared_prefixes.h"
#include "rpc/tls_credentials.h"
#include "tracing/otlp/otlp_collector.h"

namespace baton {
namespace {

// Calls of cancelled requests to workers end within a round trip; they wait for no work.
constexpr int64_t kLastCallsMs = 10'000;
// Time for clients to read how their answers ended.
constexpr int64_t kLastWordsMs = 1000;
constexpr int64_t kDrainTickMs = 100;
constexpr size_t kNoWindow = 1 << 30;

// Largest size of a request: its text, or a million token ids of up to five bytes each, plus the
// fields around it.
constexpr int64_t kLeastReceiveBytes = 5 << 20;
constexpr int64_t kFramingBytes = 1 << 20;

// Clients choose the hashed text. With random seeds, they cannot aim at one place of the index.
KeySeeds RandomKeySeeds() { return {.first = EntropyBits() | 1, .second = EntropyBits() | 1}; }

// Names this run of this router to the workers.
std::string PlannerName(const RouterServerOptions& options) {
  const std::string& address =
      options.router.advertise.empty() ? options.server.listen : options.router.advertise;
  return absl::StrCat("router ", address.substr(0, 200), " ", absl::Hex(EntropyBits()));
}

}  // namespace

RouterServer::RouterServer(const RouterServerOptions& options, std::unique_ptr<ApiKeys> api_keys)
    : options_(options),
      api_keys_(std::move(api_keys)),
      traces_(OtlpExporter::Start(options.tracing, "baton-router", options.router.advertise,
                                  &metrics_)),
      core_(options_.router, &clock_, RandomKeySeeds()),
      request_log_(options_.router.request_log_lines, &clock_, &metrics_),
      channels_(FleetCredentials(options_.server.tls, CallerRole::kWorker)),
      limit_(options_.server.max_active_requests),
      tenants_(options_.router.tenants.empty()
                   ? nullptr
                   : std::make_unique<TenantGate>(&clock_, options_.router.router_count)),
      streams_(std::chrono::milliseconds(options_.router.client_stall_ms)),
      fetcher_(&core_, &channels_),
      subscriber_(&core_.index(), &channels_, &clock_, options_.router.max_workers),
      role_changer_(options_.router.roles, PlannerName(options_), &core_, &channels_, &clock_),
      registry_service_(&core_, &heartbeats_, &refused_, &fetcher_, &log_, &metrics_),
      inference_service_(Host(), &limit_, &streams_, &heartbeats_, &refused_),
      ticked_us_(clock_.NowUs()) {
  core_.set_metrics(&metrics_);
  inference_service_.set_role_plan([this] { return role_changer_.Status(); });
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
          .api_keys = api_keys_.get(),
          .tenants = tenants_.get(),
          .tracer = traces_ == nullptr ? nullptr : traces_->tracer(),
          .recent = options_.metrics_listen.empty() ? nullptr : &recent_};
}

absl::StatusOr<std::unique_ptr<RouterServer>> RouterServer::Start(
    const RouterServerOptions& options) {
  RETURN_IF_ERROR(CheckAddresses({{"--listen", options.server.listen, false},
                                  {"--http-listen", options.http.listen},
                                  {"--metrics-listen", options.metrics_listen}}));
  RETURN_IF_ERROR(CheckCollector(options.tracing));
  RETURN_IF_ERROR(CheckRouterSecurity(options));
  LogSecurityWarnings(options);
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
  if (out->tenants_ != nullptr) RETURN_IF_ERROR(out->ReadTenants());
  RpcServerOptions server = options.server;
  server.resets = {.unanswered = 1024, .per_second = 100};
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
  source.status = [this] { return StatusPage(); };
  return source;
}

std::string RouterServer::StatusPage() const {
  const v1::GetStatusResponse status = inference_service_.CurrentStatus();
  const auto model = core_.model();
  std::vector<RecentRequest> recent = recent_.All();
  std::vector<KnownPrompt> prompts;
  for (RecentRequest& request : recent) {
    KnownPrompt& prompt = prompts.emplace_back();
    prompt.hashes = std::move(request.prompt_hashes);
    for (const HeldPrefix& held : core_.index().Match(prompt.hashes)) {
      prompt.held_units.push_back(held.units);
    }
  }
  return StatusPageToJson({.status = &status,
                           .model = model.ok() ? (*model)->description().name : "",
                           .waiting = core_.waiting(),
                           .recent = std::move(recent),
                           .tree = SharedPrefixes(prompts),
                           .now_us = clock_.NowUs()});
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
  SetAlive();
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
  if (tenants_ != nullptr) TickTenants(workers);
  role_changer_.Tick();
  if (const bool ready = core_.ready() && !draining_; ready != serving_) {
    serving_ = ready;
    server_->SetServing(ready);
  }
  return serving_;
}

absl::Status RouterServer::ReadTenants() {
  tenants_file_ = std::make_unique<WatchedFile>(options_.router.tenants);
  const absl::StatusOr<std::optional<std::string>> text = tenants_file_->ReadIfChanged();
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("--tenants: ", std::string(text.status().message())));
  }
  absl::StatusOr<TenantTable> table = TenantTable::Parse(text->value_or(""));
  if (!table.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--tenants ", options_.router.tenants, ": ",
                                                   std::string(table.status().message())));
  }
  tenants_->SetTable(*std::move(table));
  return absl::OkStatus();
}

void RouterServer::TickTenants(const std::vector<WorkerRecord>& workers) {
  // Without workers, requests must learn that there are none.
  const size_t window = workers.size() * static_cast<size_t>(options_.router.tenant_window);
  tenants_->SetWindow(workers.empty() ? kNoWindow : window);
  tenants_->Tick();
  absl::StatusOr<std::optional<std::string>> text = tenants_file_->ReadIfChanged();
  if (text.ok() && !text->has_value()) return;
  absl::StatusOr<TenantTable> table =
      text.ok() ? TenantTable::Parse(**text) : absl::StatusOr<TenantTable>(text.status());
  if (!table.ok()) {
    LOG(ERROR) << "--tenants " << options_.router.tenants << ": " << table.status().message()
               << "; the limits stay as they were";
    return;
  }
  LOG(INFO) << "--tenants " << options_.router.tenants << ": " << table->size() << " tenants";
  tenants_->SetTable(*std::move(table));
}

void RouterServer::Shutdown() {
  if (shut_down_ || server_ == nullptr) return;
  shut_down_ = true;
  draining_ = true;
  server_->SetServing(false);
  if (options_.server.shutdown_delay_ms > 0) AwaitShutdownDelay();
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

void RouterServer::AwaitShutdownDelay() {
  if (http_edge_ != nullptr) http_edge_->ReportDraining();
  const int64_t until_us = clock_.NowUs() + options_.server.shutdown_delay_ms * 1000;
  for (;;) {
    const int64_t left_us = until_us - clock_.NowUs();
    if (left_us <= 0) return;
    Tick();
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(left_us, kDrainTickMs * 1000)));
  }
}

bool RouterServer::WaitUntilIdle(int64_t timeout_ms) {
  const int64_t until_us = clock_.NowUs() + timeout_ms * 1000;
  for (;;) {
    const int64_t left_ms = (until_us - clock_.NowUs()) / 1000;
    if (limit_.WaitUntilIdle(std::clamp<int64_t>(left_ms, 0, kDrainTickMs))) return true;
    if (left_ms <= 0) return false;
    if (http_edge_ != nullptr) http_edge_->Tick();
    SetAlive();
  }
}

}  // namespace baton
