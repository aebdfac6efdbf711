#include "router/request_trace.h"

#include <utility>

namespace baton {
namespace {

constexpr char kProvider[] = "baton";

bool IsChat(const ClientRequest& request, Endpoint endpoint) {
  return endpoint == Endpoint::kChatCompletions || request.messages.has_value();
}

void AddSampling(const SamplingParams& sampling, Span& span) {
  const auto number = [](float value) { return static_cast<double>(value); };
  if (sampling.max_tokens) span.Add("gen_ai.request.max_tokens", int64_t{*sampling.max_tokens});
  span.Add("gen_ai.request.temperature", number(sampling.temperature));
  span.Add("gen_ai.request.top_p", number(sampling.top_p));
  if (sampling.top_k > 0) span.Add("gen_ai.request.top_k", int64_t{sampling.top_k});
  if (sampling.presence_penalty != 0) {
    span.Add("gen_ai.request.presence_penalty", number(sampling.presence_penalty));
  }
  if (sampling.frequency_penalty != 0) {
    span.Add("gen_ai.request.frequency_penalty", number(sampling.frequency_penalty));
  }
}

}  // namespace

std::unique_ptr<RequestTrace> RequestTrace::Begin(const Tracer* tracer,
                                                  std::string_view trace_parent,
                                                  int64_t received_us) {
  const std::optional<TraceContext> client = ParseTraceParent(trace_parent);
  if (tracer == nullptr && !client.has_value()) return nullptr;
  const TraceContext context = tracer == nullptr ? *client : tracer->NewSpan(client);
  const uint64_t parent = client.has_value() ? client->span : 0;
  return std::unique_ptr<RequestTrace>(new RequestTrace(tracer, context, parent, received_us));
}

RequestTrace::RequestTrace(const Tracer* tracer, const TraceContext& context, uint64_t parent,
                           int64_t received_us)
    : tracer_(tracer),
      context_(context),
      received_us_(received_us),
      request_{.context = context,
               .parent = parent,
               .name = "request",
               .kind = SpanKind::kServer,
               .begin_us = received_us},
      next_route_us_(received_us) {}

Span RequestTrace::Part(std::string_view name, int64_t begin_us, int64_t end_us) const {
  return {.context = tracer_->NewSpan(context_),
          .parent = context_.span,
          .name = std::string(name),
          .begin_us = begin_us,
          .end_us = end_us};
}

void RequestTrace::Describe(const ClientRequest& request, Endpoint endpoint,
                            const std::string& request_id, const std::string& model,
                            uint64_t seed) {
  if (!records()) return;
  const std::string operation = IsChat(request, endpoint) ? "chat" : "text_completion";
  request_.name = operation + " " + model;
  request_.Add("gen_ai.operation.name", operation);
  request_.Add("gen_ai.provider.name", std::string(kProvider));
  request_.Add("gen_ai.request.model", model);
  request_.Add("gen_ai.response.model", model);
  request_.Add("gen_ai.response.id", request_id);
  AddSampling(request.sampling, request_);
  request_.Add("gen_ai.request.seed", static_cast<int64_t>(seed));
  if (request.n > 1) request_.Add("gen_ai.request.choice.count", int64_t{request.n});
}

void RequestTrace::Tokenized(int64_t now_us) {
  if (!records()) return;
  next_route_us_ = now_us;
  tracer_->Record(Part("tokenize", received_us_, now_us));
}

void RequestTrace::Routed(const Route& route, int64_t now_us) {
  if (!records()) return;
  EndRoute();
  Span span = Part("route", std::exchange(next_route_us_, now_us), now_us);
  span.Add("baton.decode_worker", route.decode_id);
  if (!route.prefill_id.empty()) span.Add("baton.prefill_worker", route.prefill_id);
  if (!route.pull_source_id.empty()) span.Add("baton.pull_source", route.pull_source_id);
  span.Add("baton.estimated_first_token_us", static_cast<int64_t>(route.plan.first_token_us));
  route_ = std::move(span);
}

void RequestTrace::Reserved(int64_t now_us) {
  if (route_.has_value()) route_->end_us = now_us;
}

void RequestTrace::EndRoute() {
  if (route_.has_value()) tracer_->Record(*std::move(route_));
  route_.reset();
}

void RequestTrace::Pulled(int64_t began_us, int64_t now_us, int64_t tokens,
                          const std::string& source, const absl::Status& status) {
  if (!records()) return;
  Span span = Part("pull", began_us, now_us);
  span.code = status.code();
  span.Add("baton.pull_source", source);
  span.Add("baton.pulled_tokens", tokens);
  tracer_->Record(std::move(span));
}

void RequestTrace::TokensArrived(int64_t now_us) {
  if (first_token_us_ == 0) first_token_us_ = now_us;
  // The next route, if there is one, continues this answer on another worker.
  next_route_us_ = now_us;
}

void RequestTrace::ChoiceFinished(std::string_view reason) {
  if (records()) finish_reasons_.emplace_back(reason);
}

void RequestTrace::Ended(const absl::Status& status, int64_t now_us, const TraceFigures& figures) {
  if (!records()) return;
  EndRoute();
  request_.end_us = now_us;
  request_.code = status.code();
  if (figures.prompt_tokens > 0) {
    request_.Add("gen_ai.usage.input_tokens", figures.prompt_tokens);
    request_.Add("gen_ai.usage.cache_read.input_tokens", figures.cached_tokens);
    request_.Add("gen_ai.usage.output_tokens", figures.output_tokens);
  }
  if (!finish_reasons_.empty()) {
    request_.Add("gen_ai.response.finish_reasons", std::move(finish_reasons_));
  }
  if (first_token_us_ != 0) {
    request_.Add("baton.first_token_us", first_token_us_ - received_us_);
  }
  if (figures.resumes > 0) request_.Add("baton.resumes", figures.resumes);
  tracer_->Record(std::move(request_));
}

}  // namespace baton
