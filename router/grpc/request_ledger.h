// Builds one request's ledger from the router's own times and the reports of the decode and the
// prefill worker.
//
// Thread safety: belongs to its request.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"
#include "routing/routing_policy.h"

namespace baton {

class RequestLedgerBuilder {
 public:
  explicit RequestLedgerBuilder(int64_t received_us) : received_us_(received_us) {}

  int64_t received_us() const { return received_us_; }
  void Tokenized(int64_t now_us) { tokenized_us_ = now_us; }
  // A decode worker has reserved blocks, or was asked to when it has room. The last call before the
  // first token counts.
  void Routed(int64_t now_us) {
    if (first_token_us_ == 0) routed_us_ = now_us;
  }
  void TokensArrived(int64_t now_us, int32_t count, int32_t choice = 0);
  // A pull for the present attempt has ended. `tokens` is 0 if nothing came. `chunk_bytes`: KV of
  // prompt chunks that it brought.
  void Pulled(int64_t us, int32_t tokens, const std::string& source, int64_t chunk_bytes = 0) {
    chunk_pulled_bytes_ = chunk_bytes;
    pull_us_ = us;
    pulled_tokens_ = tokens;
    pull_source_ = tokens > 0 ? source : "";
  }
  void PrefillReported(const v1::PrefillResponse& report) { prefill_ = report; }
  // Another decode worker is asked. Earlier reports do not apply to it.
  void AttemptStarted() { prefill_.reset(); }

  // Fills usage and ledger of `finished`, which already holds the decode worker's figures for its
  // choice. `prefill_worker` is empty if the decode worker computed the prompt.
  void Complete(int64_t now_us, const std::string& prefill_worker, const std::string& decode_worker,
                v1::Finished& finished) const;

 private:
  void AddPrefill(v1::Finished& finished) const;

  const int64_t received_us_;
  int64_t tokenized_us_ = 0;
  int64_t routed_us_ = 0;
  struct Progress {
    int64_t first_token_us = 0;
    int64_t last_token_us = 0;
    int32_t tokens_after_first = 0;  // tokens in the messages after the first
  };
  int64_t first_token_us_ = 0;            // of all choices
  std::map<int32_t, Progress> progress_;  // by choice
  int64_t pull_us_ = 0;
  int32_t pulled_tokens_ = 0;
  std::string pull_source_;
  int64_t chunk_pulled_bytes_ = 0;
  std::optional<v1::PrefillResponse> prefill_;
};

// Returns what routing learns from a request with a complete ledger. `decode_batch`: sequences on
// the decode worker when the request was routed, including this one. If a prefill worker was
// planned but has not reported, the result has no prefill figures.
FinishedRequest FinishedFromLedger(const RoutePlan& plan, int32_t decode_batch,
                                   bool prefill_reported, const v1::Finished& finished);

// Returns what routing learns from a pull of `asked` tokens that took `us` at the router. `told` is
// the receiver's report.
FinishedPull FinishedFromPull(WorkerNumber receiver, int64_t us, int32_t asked,
                              const v1::PulledPrefix& told);

}  // namespace baton
