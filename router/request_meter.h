// Counts one request of a client in the router's metrics: how long its parts took, where its
// prompt's KV came from, and how it ended.
//
// Invariant: every request is counted once in baton_requests_total, by Ended.
//
// Thread safety: belongs to its request.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "metrics/metric_set.h"
#include "routing/routing_policy.h"

namespace baton {

// Where the KV of an answered prompt came from, as its ledger says.
struct PromptFigures {
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t pulled_tokens = 0;
  int64_t decode_cached_tokens = 0;  // pulled ones included if the decode worker pulled them
  bool prefilled_elsewhere = false;  // by a prefill worker
};

class RequestMeter {
 public:
  // `metrics` must outlive this; null: nothing is counted.
  RequestMeter(MetricSet* metrics, Endpoint endpoint, int64_t received_us)
      : metrics_(metrics), endpoint_(endpoint), received_us_(received_us) {}

  // A request that ends before it has a meter. `reason`: nullopt if the client ended it.
  static void Refused(MetricSet* metrics, Endpoint endpoint, const absl::Status& status,
                      Refusal reason);

  void Tokenized(int64_t now_us);
  // Each route that is chosen for the request.
  void Routed(const RoutePlan& plan, int64_t now_us);
  void TokensArrived(int64_t now_us, int32_t count, int32_t choice);
  void PullEnded(PullOutcomeLabel outcome);
  void WorkerLost(PrefillPlace role);
  // Time from the request's arrival to its first token; 0: there was none.
  int64_t first_token_us() const {
    return first_token_us_ == 0 ? 0 : first_token_us_ - received_us_;
  }
  Endpoint endpoint() const { return endpoint_; }
  // The router shuts down, so errors from now on are not the workers' fault.
  void ShutsDown() { shuts_down_ = true; }
  // REQUIRES: called once, as the last function. `prompt`: of a complete answer.
  void Ended(const absl::Status& status, int64_t now_us, const PromptFigures& prompt);

 private:
  void CountPrompt(const PromptFigures& prompt);
  // Why a request without a token has ended with `status`. nullopt: by its client, or by a failure.
  std::optional<Refusal> ReasonOf(const absl::Status& status) const;

  MetricSet* const metrics_;
  const Endpoint endpoint_;
  const int64_t received_us_;
  bool shuts_down_ = false;
  int32_t routes_ = 0;
  int64_t routed_us_ = 0;
  RoutePlan plan_{.decode = WorkerNumber(0), .prefill = std::nullopt};  // of the latest route
  int64_t first_token_us_ = 0;
  std::map<int32_t, int64_t> last_tokens_us_;  // by choice
};

}  // namespace baton
