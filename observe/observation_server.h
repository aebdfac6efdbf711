// HTTP server for operators: `/metrics`, `/livez`, `/readyz`, and on a router `/targets` and the
// status page. It has a port of its own, so that clients do not reach it.
//
// The server can start before the program that it observes: until Observe, the program is alive and
// not ready.
//
// Thread safety: every function, from any thread. The functions of a source run on the server's
// thread, one at a time. They must not wait for the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "http/http_server.h"
#include "metrics/metric_set.h"
#include "observe/status_page.h"

namespace baton {

// What the server asks of a program. A null function stands for OK, or for nothing to do.
struct ObservationSource {
  // Sets the metrics that are not counted as events, before each scrape.
  std::function<void(MetricSet&)> refresh;
  // An error means that only a new process can help.
  std::function<absl::Status()> alive;
  // An error means that no request should be sent now.
  std::function<absl::Status()> ready;
  // Body of /targets, a JSON text. Null: there is no such path.
  std::function<std::string()> targets;
  // Body of /status.json, a JSON text, which the status page at / reads. Null: there are no such
  // paths.
  std::function<std::string()> status = {};
};

class ObservationServer {
 public:
  // `program`: for baton_build_info. `metrics` must outlive the server. Errors as
  // HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<ObservationServer>> Start(const std::string& listen,
                                                                  const std::string& program,
                                                                  MetricSet* metrics);

  // Replaces the source. No function of the earlier source runs any more when this returns.
  void Observe(ObservationSource source);
  // The program is ending: it is alive and not ready. Ends as Observe.
  void StopObserving();

  // HOST:PORT at which it listens.
  const std::string& address() const { return server_->address(); }
  // HOST:PORT at which other processes reach it. If it listens at every address of this machine,
  // the host is that of `advertise`, which is a HOST, a HOST:PORT, or empty: 127.0.0.1.
  std::string ReachableAddress(const std::string& advertise) const;
  int32_t port() const { return server_->port(); }

 private:
  explicit ObservationServer(MetricSet* metrics);

  HttpRoutes Routes();
  HttpResponse Metrics();
  HttpResponse Live();
  HttpResponse Ready();
  HttpResponse Targets();
  HttpResponse Status();
  HttpResponse Page(const PageFile& file);
  absl::Status AliveLocked() const;
  absl::Status ReadyLocked() const;

  MetricSet* const metrics_;
  std::mutex mutex_;
  ObservationSource source_;            // guarded by mutex_
  std::unique_ptr<HttpServer> server_;  // last member: its thread uses the others
};

// Lets a server observe a source while this object lives. So an observation ends before the objects
// that it observes.
class Observation {
 public:
  // `server` may be null. It must outlive this.
  Observation(ObservationServer* server, ObservationSource source) : server_(server) {
    if (server_ != nullptr) server_->Observe(std::move(source));
  }
  ~Observation() {
    if (server_ != nullptr) server_->StopObserving();
  }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  ObservationServer* const server_;
};

}  // namespace baton
