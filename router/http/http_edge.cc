#include "router/http/http_edge.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "openai/api_error.h"
#include "openai/model_list.h"
#include "router/http/error_response.h"
#include "security/access_table.h"
#include "security/api_keys.h"
#include "security/tls_context.h"

namespace baton {
namespace {

constexpr char kTimeoutHeader[] = "Baton-Timeout-Ms";
constexpr int64_t kMostTimeoutMs = 86'400'000;
constexpr int64_t kUsPerMs = 1000;
constexpr char kJson[] = "application/json";

// JSON may double a text by escapes, and writes a token id with up to eight bytes.
constexpr int64_t kLeastBodyBytes = 8 << 20;
constexpr int64_t kAroundTheText = 1 << 20;
size_t MaxBodyBytes(const RouterOptions& options) {
  return static_cast<size_t>(std::max(2 * options.max_prompt_bytes, kLeastBodyBytes) +
                             kAroundTheText);
}

TokenText TextOfTokens(std::shared_ptr<const ServedModel> model) {
  return [model = std::move(model)](TokenId id) -> std::string_view {
    const Tokenizer& tokenizer = model->tokenizer();
    if (id < 0 || id >= tokenizer.vocab_size()) return {};
    return tokenizer.TokenBytes(id);
  };
}

// Prompts of one request need different ids.
std::string IdOfPrompt(const std::string& id, size_t prompt, size_t prompts) {
  return prompts == 1 ? id : absl::StrCat(id.substr(0, kMaxRequestIdBytes - 3), "-", prompt);
}

std::string RowOf(const HttpRoute& route) { return absl::StrCat(route.method, " ", route.path); }

absl::Status CheckRowsOf(const HttpRoutes& routes) {
  for (const HttpRoute& route : routes.All()) {
    if (WhoMayCall(RowOf(route)).has_value()) continue;
    return absl::InternalError(absl::StrCat(
        RowOf(route), " has no row in security/access_table.cc, so no role may call it"));
  }
  return absl::OkStatus();
}

constexpr const char* kChatPath = "/v1/chat/completions";
constexpr const char* kCompletionsPath = "/v1/completions";

Endpoint EndpointLabel(OpenAiEndpoint endpoint) {
  return endpoint == OpenAiEndpoint::kChatCompletions ? Endpoint::kChatCompletions
                                                      : Endpoint::kCompletions;
}

// nullopt: the request is none for an answer of the model.
std::optional<Endpoint> EndpointOf(const HttpRequest& request) {
  if (request.method != "POST") return std::nullopt;
  if (request.path == kChatPath) return Endpoint::kChatCompletions;
  if (request.path == kCompletionsPath) return Endpoint::kCompletions;
  return std::nullopt;
}

}  // namespace

HttpEdge::HttpEdge(const HttpEdgeOptions& options, const GenerateHost& host,
                   ConcurrencyLimit* limit)
    : options_(options),
      host_(host),
      limit_(limit),
      names_(options.served_model_names),
      started_at_s_(static_cast<int64_t>(std::time(nullptr))),
      max_body_bytes_(MaxBodyBytes(*host.options)) {}

absl::StatusOr<std::unique_ptr<HttpEdge>> HttpEdge::Start(const HttpEdgeOptions& options,
                                                          const GenerateHost& host,
                                                          ConcurrencyLimit* limit) {
  std::unique_ptr<HttpEdge> out(new HttpEdge(options, host, limit));
  HttpServerOptions server;
  server.listen = options.listen;
  server.max_connections = options.max_connections;
  server.stall_ms = host.options->client_stall_ms;
  server.allow_origins = options.allow_origins;
  server.problem_response = [](const HttpProblem& problem) {
    return ErrorResponse(HttpError(problem.status, problem.message));
  };
  server.admit = [edge = out.get()](const HttpRequest& request, const HttpRoute& route) {
    return edge->Admit(request, route);
  };
  server.refused = [edge = out.get()](const HttpRequest& request, const std::string& id,
                                      const HttpProblem& problem) {
    edge->OnProblem(request, id, problem);
  };
  if (options.tls.any()) {
    ASSIGN_OR_RETURN(server.tls, TlsContextSource::Open(options.tls, {.side = TlsSide::kServer,
                                                                      .verify_peer = false}));
  }
  HttpRoutes routes = out->Routes();
  RETURN_IF_ERROR(CheckRowsOf(routes));
  ASSIGN_OR_RETURN(out->server_, HttpServer::Start(server, std::move(routes)));
  return out;
}

HttpEdge::~HttpEdge() { Shutdown(0); }

HttpRoutes HttpEdge::Routes() {
  HttpRoutes routes;
  const auto complete = [this](OpenAiEndpoint endpoint) {
    return [this, endpoint](HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) {
      Complete(endpoint, std::move(request), exchange);
    };
  };
  routes.Add({.method = "POST",
              .path = kChatPath,
              .handler = complete(OpenAiEndpoint::kChatCompletions),
              .max_body_bytes = max_body_bytes_,
              .content_type = kJson});
  routes.Add({.method = "POST",
              .path = kCompletionsPath,
              .handler = complete(OpenAiEndpoint::kCompletions),
              .max_body_bytes = max_body_bytes_,
              .content_type = kJson});
  routes.Add({.method = "GET", .path = "/v1/models", .handler = [this](HttpRequest, auto exchange) {
                ListModels(exchange);
              }});
  routes.Add(
      {.method = "GET",
       .path = "/v1/models/",
       .handler = [this](HttpRequest request, auto exchange) { ShowModel(request, exchange); }});
  routes.Add({.method = "GET", .path = "/health", .handler = [this](HttpRequest, auto exchange) {
                ShowHealth(exchange);
              }});
  return routes;
}

absl::StatusOr<Caller> HttpEdge::ClientOf(const HttpRequest& request,
                                          const std::string& row) const {
  const Caller anyone = {.roles = {CallerRole::kClient}, .tenant = std::nullopt};
  if (host_.api_keys == nullptr || CheckAccess(row, {}).ok()) {
    RETURN_IF_ERROR(CheckAccess(row, anyone.roles));
    return anyone;
  }
  std::optional<Caller> found = host_.api_keys->FindBearer(request.Header("authorization"));
  if (!found.has_value()) return absl::UnauthenticatedError("unauthenticated");
  RETURN_IF_ERROR(CheckAccess(row, found->roles));
  return *std::move(found);
}

std::optional<HttpProblem> HttpEdge::Admit(const HttpRequest& request,
                                           const HttpRoute& route) const {
  const absl::Status status = ClientOf(request, RowOf(route)).status();
  if (status.ok()) return std::nullopt;
  return HttpProblem{.status = absl::IsUnauthenticated(status) ? 401 : 403,
                     .message = std::string(status.message())};
}

void HttpEdge::Tick() { answers_.Tick(); }

void HttpEdge::ReportDraining() {
  draining_ = true;
  server_->EndConnections();
}

void HttpEdge::Drain() {
  draining_ = true;
  server_->Drain();
}

void HttpEdge::Shutdown(int64_t grace_ms) {
  if (server_ != nullptr) server_->Shutdown(grace_ms);
}

// ---- models and health --------------------------------------------------------------------------

void HttpEdge::ListModels(const std::shared_ptr<HttpExchange>& exchange) const {
  const auto model = host_.core->model();
  if (!model.ok()) return exchange->Reply(ErrorResponse(ApiErrorOf(model.status())));
  const ModelDescription& description = (*model)->description();
  std::vector<ListedModel> listed;
  for (std::string& name : names_.All(description.name)) {
    listed.push_back({.id = std::move(name),
                      .created = started_at_s_,
                      .context_length = description.context_length});
  }
  exchange->Reply(JsonResponse(200, ModelListBody(listed)));
}

void HttpEdge::ShowModel(const HttpRequest& request,
                         const std::shared_ptr<HttpExchange>& exchange) const {
  const auto model = host_.core->model();
  if (!model.ok()) return exchange->Reply(ErrorResponse(ApiErrorOf(model.status())));
  const ModelDescription& description = (*model)->description();
  const auto id = PercentDecode(std::string_view(request.path).substr(sizeof("/v1/models/") - 1));
  if (!id.has_value() || !names_.Has(description.name, *id)) {
    const std::string known = absl::StrJoin(names_.All(description.name), ", ");
    return exchange->Reply(ErrorResponse(ModelNotFound(id.value_or(request.path), known)));
  }
  exchange->Reply(JsonResponse(200, ModelBody({.id = *id,
                                               .created = started_at_s_,
                                               .context_length = description.context_length})));
}

void HttpEdge::ShowHealth(const std::shared_ptr<HttpExchange>& exchange) const {
  if (draining_) {
    return exchange->Reply(ErrorResponse(ApiErrorOf(absl::UnavailableError(kDrainingMessage))));
  }
  if (!host_.core->ready()) {
    return exchange->Reply(ErrorResponse(ApiErrorOf(absl::UnavailableError(
        "the router is not ready: it waits for workers of the roles that it needs"))));
  }
  absl::Status accepts = limit_->MayEnter();
  // With tenants, the line of one is not that of another.
  if (accepts.ok() && host_.tenants == nullptr) {
    accepts = host_.core->MayWait(options_.timeout_ms * kUsPerMs, /*priority=*/0,
                                  std::numeric_limits<size_t>::max());
  }
  if (!accepts.ok()) return exchange->Reply(ErrorResponse(ApiErrorOf(accepts)));
  exchange->Reply(JsonResponse(200, R"({"status":"ok"})"));
}

// ---- completions --------------------------------------------------------------------------------

absl::StatusOr<int64_t> HttpEdge::TimeoutMs(const HttpRequest& request) const {
  const std::string* text = request.Header(kTimeoutHeader);
  if (text == nullptr) return options_.timeout_ms;
  int64_t timeout_ms = 0;
  if (!absl::SimpleAtoi(*text, &timeout_ms) || timeout_ms < 1 || timeout_ms > kMostTimeoutMs) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTimeoutHeader, " is \"", text->substr(0, 40),
                     "\"; it must be a number of milliseconds from 1 to ", kMostTimeoutMs));
  }
  return timeout_ms;
}

void HttpEdge::Complete(OpenAiEndpoint endpoint, HttpRequest request,
                        const std::shared_ptr<HttpExchange>& exchange) {
  const absl::StatusOr<int64_t> timeout_ms = TimeoutMs(request);
  if (!timeout_ms.ok()) {
    Refused(EndpointLabel(endpoint), request.id, timeout_ms.status(), Refusal::kInvalid);
    return exchange->Reply(ErrorResponse(ApiErrorOf(timeout_ms.status())));
  }
  absl::StatusOr<ConcurrencyLimit::Slot> slot = limit_->Enter();
  if (!slot.ok()) {
    Refused(EndpointLabel(endpoint), request.id, slot.status(), Refusal::kLimit);
    return exchange->Reply(ErrorResponse(ApiErrorOf(slot.status())));
  }
  const CallDeadline deadline(*timeout_ms * kUsPerMs, host_.clock);
  const auto answer = std::make_shared<HttpAnswer>(
      exchange, deadline, std::chrono::milliseconds(options_.keepalive_ms));
  exchange->OnGone([weak = std::weak_ptr(answer)] {
    if (const auto gone = weak.lock()) gone->OnClientGone();
  });
  answers_.Add(answer);
  // A task must be copyable.
  struct Waiting {
    HttpRequest request;
    ConcurrencyLimit::Slot slot;
  };
  const size_t bytes = request.body.size();
  const auto waiting = std::make_shared<Waiting>(Waiting{std::move(request), *std::move(slot)});
  const absl::Status posted =
      host_.text_tasks->Post(bytes, 0, [this, endpoint, waiting, deadline, answer] {
        StartCalls(endpoint, waiting->request, std::move(waiting->slot), deadline, answer);
      });
  if (posted.ok()) return;
  Refused(EndpointLabel(endpoint), exchange->id(), posted, Refusal::kLimit);
  answer->Fail(posted);
}

void HttpEdge::Refused(Endpoint endpoint, std::string_view id, const absl::Status& status,
                       Refusal reason) const {
  const bool ending = reason == Refusal::kLimit && absl::IsUnavailable(status);
  host_.Refused(endpoint, id, status, ending ? Refusal::kShutdown : reason);
}

void HttpEdge::OnProblem(const HttpRequest& request, const std::string& id,
                         const HttpProblem& problem) const {
  const std::optional<Endpoint> endpoint = EndpointOf(request);
  if (!endpoint) return;
  const auto refused = [&](absl::StatusCode code, Refusal reason) {
    Refused(*endpoint, id, absl::Status(code, problem.message), reason);
  };
  switch (problem.status) {
    case 401:
      return refused(absl::StatusCode::kUnauthenticated, Refusal::kUnauthorized);
    case 403:
      return refused(absl::StatusCode::kPermissionDenied, Refusal::kUnauthorized);
    case 408:
      return refused(absl::StatusCode::kDeadlineExceeded, Refusal::kInvalid);
    case 503:
      return refused(absl::StatusCode::kResourceExhausted, Refusal::kLimit);
    default:
      return refused(absl::StatusCode::kInvalidArgument, Refusal::kInvalid);
  }
}

absl::StatusOr<std::vector<std::unique_ptr<TenantVisit>>> HttpEdge::EnterTenants(
    const std::vector<ClientRequest>& prompts) const {
  if (host_.tenants == nullptr) return std::vector<std::unique_ptr<TenantVisit>>(prompts.size());
  // All prompts of a body have its tenant and its priority.
  return host_.tenants->EnterAll(prompts.front().tenant, prompts.front().priority,
                                 static_cast<int32_t>(prompts.size()));
}

void HttpEdge::StartCalls(OpenAiEndpoint endpoint, const HttpRequest& request,
                          ConcurrencyLimit::Slot slot, const CallDeadline& deadline,
                          const std::shared_ptr<HttpAnswer>& answer) {
  const auto refuse = [&](const absl::Status& status, Refusal reason) {
    Refused(EndpointLabel(endpoint), request.id, status, reason);
    answer->Fail(status);
  };
  absl::StatusOr<OpenAiRequest> read = ReadOpenAiRequest(endpoint, request.body, max_body_bytes_);
  if (!read.ok()) return refuse(read.status(), Refusal::kInvalid);
  const absl::StatusOr<Caller> client =
      ClientOf(request, absl::StrCat(request.method, " ", request.path));
  if (!client.ok()) return refuse(client.status(), Refusal::kUnauthorized);
  for (ClientRequest& prompt : read->prompts) {
    const absl::Status tenant = TakeTenant(*client, prompt.tenant);
    if (!tenant.ok()) return refuse(tenant, Refusal::kUnauthorized);
  }
  const auto model = host_.core->model();
  if (!model.ok()) return refuse(model.status(), Refusal::kNoWorker);
  const ModelDescription& description = (*model)->description();
  if (!read->model.empty() && !names_.Has(description.name, read->model)) {
    const ApiError unknown =
        ModelNotFound(read->model, absl::StrJoin(names_.All(description.name), ", "));
    Refused(EndpointLabel(endpoint), request.id, absl::NotFoundError(unknown.message),
            Refusal::kInvalid);
    return answer->Fail(unknown);
  }
  absl::StatusOr<std::vector<std::unique_ptr<TenantVisit>>> visits = EnterTenants(read->prompts);
  if (!visits.ok()) {
    const bool invalid = absl::IsInvalidArgument(visits.status());
    return refuse(visits.status(), invalid ? Refusal::kInvalid : Refusal::kLimit);
  }
  const int32_t priority =
      visits->front() == nullptr ? read->prompts.front().priority : visits->front()->priority();
  const absl::Status timely =
      host_.core->MayWait(deadline.LeftUs(), priority, MostAhead(visits->front().get()));
  if (!timely.ok()) return refuse(timely, Refusal::kOverload);
  // All prompts get their places before one of them starts.
  std::vector<ConcurrencyLimit::Slot> slots;
  slots.push_back(std::move(slot));
  while (slots.size() < read->prompts.size()) {
    absl::StatusOr<ConcurrencyLimit::Slot> next = limit_->Enter();
    if (!next.ok()) return refuse(next.status(), Refusal::kLimit);
    slots.push_back(*std::move(next));
  }
  std::vector<HttpHeader> headers;
  if (!read->ignored_fields.empty()) {
    ignored_fields_ += static_cast<int64_t>(read->ignored_fields.size());
    headers.push_back({"Baton-Ignored-Fields", IgnoredFieldsHeader(read->ignored_fields)});
  }
  const AnswerHead head = {.id = AnswerId(endpoint, request.id),
                           .created = static_cast<int64_t>(std::time(nullptr)),
                           .model = read->model.empty() ? description.name : read->model,
                           .system_fingerprint = description.fingerprint};
  answer->Start(std::move(read->form), head, TextOfTokens(*model), std::move(headers));
  for (size_t i = 0; i < read->prompts.size(); ++i) {
    ClientRequest& prompt = read->prompts[i];
    prompt.request_id = IdOfPrompt(request.id, i, read->prompts.size());
    if (const std::string* span = request.Header("traceparent")) prompt.trace_parent = *span;
    const auto call = std::make_shared<GenerateCall>(
        host_, std::move(slots[i]), answer->Stream(static_cast<int32_t>(i)), deadline, priority,
        EndpointLabel(endpoint), std::move((*visits)[i]));
    call->SetRequestId(prompt.request_id);
    if (!answer->AddCall(call)) return;
    call->Start(std::move(prompt));
  }
}

}  // namespace baton
