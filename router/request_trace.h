// The spans that a router makes for one request:
//
//   chat MODEL          the whole request; it continues the client's trace, if there is one
//     tokenize          arrival to tokenised
//     route             for each route: choosing workers, and until a decode worker has reserved
//     pull              a prefix pull
//
// The workers add queue, prefill, transfer and decode (worker_rpc/work_trace.h). They learn the
// request's span from the traceparent in their requests.
//
// The span of the request has OpenTelemetry's gen_ai attributes, without text of prompts and
// answers. docs/TRACES.md lists all.
//
// Thread safety: belongs to its request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "metrics/metric_labels.h"
#include "requests/client_request.h"
#include "router/router_core.h"
#include "tracing/tracer.h"

namespace baton {

// What the span of a request says when it ends.
struct TraceFigures {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;  // of all choices
  int64_t resumes = 0;        // workers that the answer lost
};

class RequestTrace {
 public:
  // `trace_parent`: the client's, as it came; ignored unless it is valid. `tracer` must outlive
  // this; null: the program records no spans. Returns null if there is nothing to record and
  // nothing to pass on.
  static std::unique_ptr<RequestTrace> Begin(const Tracer* tracer, std::string_view trace_parent,
                                             int64_t received_us);

  // The traceparent for workers.
  std::string ForWorkers() const { return ToTraceParent(context_); }

  // Sets attributes of the request. `seed`: the one in use.
  void Describe(const ClientRequest& request, Endpoint endpoint, const std::string& request_id,
                const std::string& model, uint64_t seed);
  void Tokenized(int64_t now_us);
  // A route was chosen; the one before it has ended.
  void Routed(const Route& route, int64_t now_us);
  // A decode worker has reserved blocks for the route.
  void Reserved(int64_t now_us);
  void Pulled(int64_t began_us, int64_t now_us, int64_t tokens, const std::string& source,
              const absl::Status& status);
  void TokensArrived(int64_t now_us);
  // `reason`: a constant, "stop" or "length".
  void ChoiceFinished(std::string_view reason);
  // REQUIRES: called once, as the last function.
  void Ended(const absl::Status& status, int64_t now_us, const TraceFigures& figures);

 private:
  RequestTrace(const Tracer* tracer, const TraceContext& context, uint64_t parent,
               int64_t received_us);

  // True if the spans are recorded.
  bool records() const { return tracer_ != nullptr && context_.sampled; }
  // Returns a span that is a part of the request's.
  Span Part(std::string_view name, int64_t begin_us, int64_t end_us) const;
  void EndRoute();

  const Tracer* const tracer_;
  const TraceContext context_;  // of the request's span, or of the client's span if none is made
  const int64_t received_us_;
  Span request_;
  int64_t next_route_us_ = 0;  // when the next route begins
  std::optional<Span> route_;
  int64_t first_token_us_ = 0;
  std::vector<std::string> finish_reasons_;
};

}  // namespace baton
