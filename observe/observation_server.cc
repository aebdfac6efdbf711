#include "observe/observation_server.h"

#include <utility>

#include "common/host_port.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "observe/process_figures.h"
#include "observe/prometheus_text.h"

namespace baton {
namespace {

constexpr int32_t kMaxConnections = 64;
constexpr char kPlainText[] = "text/plain; charset=utf-8";
constexpr char kNoPage[] = "only a router that serves has a status page";

ObservationSource NotReady(std::string why) {
  ObservationSource source;
  source.ready = [why = std::move(why)] { return absl::UnavailableError(why); };
  return source;
}

HttpResponse Text(int status, const std::string& line) {
  return {.status = status, .content_type = kPlainText, .headers = {}, .body = line + "\n"};
}

}  // namespace

ObservationServer::ObservationServer(MetricSet* metrics)
    : metrics_(metrics), source_(NotReady("the program is starting")) {}

absl::StatusOr<std::unique_ptr<ObservationServer>> ObservationServer::Start(
    const std::string& listen, const std::string& program, MetricSet* metrics) {
  metrics->SetInfo(Metric::kBuildInfo, {BATON_VERSION, program});
  std::unique_ptr<ObservationServer> out(new ObservationServer(metrics));
  HttpServerOptions options;
  options.listen = listen;
  options.max_connections = kMaxConnections;
  ASSIGN_OR_RETURN(out->server_, HttpServer::Start(options, out->Routes()));
  return out;
}

std::string ObservationServer::ReachableAddress(const std::string& advertise) const {
  const absl::StatusOr<HostPort> bound = ParseHostPort(address());
  if (!bound.ok() || !IsWildcardHost(bound->host)) return address();
  return JoinHostPort(advertise.empty() ? "127.0.0.1" : AdvertisedHostPort(advertise, 0).host,
                      port());
}

void ObservationServer::Observe(ObservationSource source) {
  std::lock_guard lock(mutex_);
  source_ = std::move(source);
}

void ObservationServer::StopObserving() { Observe(NotReady("the program is ending")); }

HttpRoutes ObservationServer::Routes() {
  HttpRoutes routes;
  const auto add = [&](const char* path, HttpResponse (ObservationServer::*answer)()) {
    routes.Add({.method = "GET",
                .path = path,
                .handler = [this, answer](const HttpRequest&,
                                          const std::shared_ptr<HttpExchange>& exchange) {
                  exchange->Reply((this->*answer)());
                }});
  };
  add("/metrics", &ObservationServer::Metrics);
  add("/livez", &ObservationServer::Live);
  add("/readyz", &ObservationServer::Ready);
  add("/targets", &ObservationServer::Targets);
  add("/status.json", &ObservationServer::Status);
  for (const PageFile& file : StatusPageFiles()) {
    routes.Add({.method = "GET",
                .path = std::string(file.path),
                .handler = [this, &file](const HttpRequest&,
                                         const std::shared_ptr<HttpExchange>& exchange) {
                  exchange->Reply(Page(file));
                }});
  }
  return routes;
}

absl::Status ObservationServer::AliveLocked() const {
  return source_.alive ? source_.alive() : absl::OkStatus();
}

absl::Status ObservationServer::ReadyLocked() const {
  RETURN_IF_ERROR(AliveLocked());
  return source_.ready ? source_.ready() : absl::OkStatus();
}

HttpResponse ObservationServer::Metrics() {
  std::lock_guard lock(mutex_);
  SetProcessMetrics(ReadProcessFigures(), *metrics_);
  metrics_->Set(Metric::kReady, ReadyLocked().ok() ? 1 : 0);
  if (source_.refresh) source_.refresh(*metrics_);
  return {.status = 200,
          .content_type = std::string(kPrometheusTextType),
          .headers = {},
          .body = ToPrometheusText(metrics_->Read())};
}

HttpResponse ObservationServer::Live() {
  std::lock_guard lock(mutex_);
  const absl::Status alive = AliveLocked();
  return alive.ok() ? Text(200, "ok") : Text(503, std::string(alive.message()));
}

HttpResponse ObservationServer::Ready() {
  std::lock_guard lock(mutex_);
  const absl::Status ready = ReadyLocked();
  return ready.ok() ? Text(200, "ok") : Text(503, std::string(ready.message()));
}

HttpResponse ObservationServer::Targets() {
  std::lock_guard lock(mutex_);
  if (!source_.targets) return Text(404, "only a router that serves has targets");
  return {
      .status = 200, .content_type = "application/json", .headers = {}, .body = source_.targets()};
}

HttpResponse ObservationServer::Status() {
  std::lock_guard lock(mutex_);
  if (!source_.status) return Text(404, kNoPage);
  return {.status = 200,
          .content_type = "application/json",
          .headers = {{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}},
          .body = source_.status()};
}

HttpResponse ObservationServer::Page(const PageFile& file) {
  std::lock_guard lock(mutex_);
  if (!source_.status) return Text(404, kNoPage);
  return {.status = 200,
          .content_type = std::string(file.content_type),
          .headers = {{"Content-Security-Policy", std::string(kPagePolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-store"}},
          .body = std::string(file.content)};
}

}  // namespace baton
