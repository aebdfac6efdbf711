// The router's second edge: OpenAI's API over HTTP. It makes the same Generate calls as the gRPC
// edge (inference_service.h), so both give the same tokens and have the same limits.
//
//   POST /v1/chat/completions, /v1/completions
//   GET  /v1/models, /v1/models/ID
//   GET  /health   200 if a request with the default deadline would be accepted now, else 503
//
// With API keys, a request to /v1 needs one ("Authorization: Bearer KEY"). The tenant is the key's.
//
// A request has a deadline (HttpEdgeOptions::timeout_ms, or its header Baton-Timeout-Ms), so
// load shedding covers it. A client that leaves ends its calls at once.
//
// Thread safety: Start, ReportDraining, Drain, Shutdown and the destructor on one thread; Tick and
// CallOff on any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "http/http_server.h"
#include "metrics/metric_labels.h"
#include "openai/openai_request.h"
#include "router/grpc/generate_call.h"
#include "router/http/http_answer.h"
#include "router/http/http_edge_options.h"
#include "router/http/served_names.h"
#include "security/caller.h"

namespace baton {

class HttpEdge {
 public:
  // `limit` counts the calls of both edges. Everything in `host`, and `limit`, must outlive this
  // and every call. Errors as HttpServer::Start and TlsContextSource::Open. Internal: a path has no
  // row in the access table.
  static absl::StatusOr<std::unique_ptr<HttpEdge>> Start(const HttpEdgeOptions& options,
                                                         const GenerateHost& host,
                                                         ConcurrencyLimit* limit);
  ~HttpEdge();

  // Ends requests whose deadline has passed, and keeps silent streams alive. Call it several times
  // a second.
  void Tick();
  // The router will shut down: /health says so. Requests are still served, and each answer ends its
  // connection.
  void ReportDraining();
  // The router shuts down: as ReportDraining, and idle connections are closed.
  void Drain();
  // Ends all answers with `status`.
  void CallOff(const absl::Status& status) { answers_.CallOff(status); }
  // As HttpServer::Shutdown.
  void Shutdown(int64_t grace_ms);

  const std::string& address() const { return server_->address(); }
  // Fields of requests that were ignored, since the start.
  int64_t ignored_fields() const { return ignored_fields_; }

 private:
  HttpEdge(const HttpEdgeOptions& options, const GenerateHost& host, ConcurrencyLimit* limit);

  HttpRoutes Routes();
  // Returns the client of a request. `row`: of the access table. Unauthenticated, PermissionDenied.
  absl::StatusOr<Caller> ClientOf(const HttpRequest& request, const std::string& row) const;
  // Decides before a request's body is read.
  std::optional<HttpProblem> Admit(const HttpRequest& request, const HttpRoute& route) const;
  void ListModels(const std::shared_ptr<HttpExchange>& exchange) const;
  void ShowModel(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const;
  void ShowHealth(const std::shared_ptr<HttpExchange>& exchange) const;

  // Runs on an I/O thread. Posts the rest to a text thread.
  void Complete(OpenAiEndpoint endpoint, HttpRequest request,
                const std::shared_ptr<HttpExchange>& exchange);
  // Reads the body and starts a call for each prompt.
  void StartCalls(OpenAiEndpoint endpoint, const HttpRequest& request, ConcurrencyLimit::Slot slot,
                  const CallDeadline& deadline, const std::shared_ptr<HttpAnswer>& answer);
  // Returns a visit for each prompt; without tenants' limits, null pointers. Errors as
  // TenantGate::EnterAll.
  absl::StatusOr<std::vector<std::unique_ptr<TenantVisit>>> EnterTenants(
      const std::vector<ClientRequest>& prompts) const;
  // Counts and logs a request that is refused before it has a call.
  void Refused(Endpoint endpoint, std::string_view id, const absl::Status& status,
               Refusal reason) const;
  // The same for a request that the HTTP server or Admit refuses.
  void OnProblem(const HttpRequest& request, const std::string& id,
                 const HttpProblem& problem) const;
  absl::StatusOr<int64_t> TimeoutMs(const HttpRequest& request) const;

  const HttpEdgeOptions options_;
  const GenerateHost host_;
  ConcurrencyLimit* const limit_;
  const ServedNames names_;
  const int64_t started_at_s_;  // "created" of the models
  const size_t max_body_bytes_;
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> ignored_fields_ = 0;
  HttpAnswers answers_;
  std::unique_ptr<HttpServer> server_;  // last member: its threads use the others
};

}  // namespace baton
