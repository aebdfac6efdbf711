// Puts one request's ledger together: what the router saw, what the decode worker and the prefill
// worker report.
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

  void Tokenized(int64_t now_us) { tokenized_us_ = now_us; }
  // A decode worker has reserved; the last call before the first token counts.
  void Routed(int64_t now_us) {
    if (first_token_us_ == 0) routed_us_ = now_us;
  }
  void TokensArrived(int64_t now_us, int32_t count, int32_t choice = 0);
  // A pull for the attempt under way has ended; `tokens` 0: nothing came.
  void Pulled(int64_t us, int32_t tokens, const std::string& source) {
    pull_us_ = us;
    pulled_tokens_ = tokens;
    pull_source_ = tokens > 0 ? source : "";
  }
  void PrefillReported(const v1::PrefillResponse& report) { prefill_ = report; }
  // Another decode worker is asked: what was reported before does not concern it.
  void AttemptStarted() { prefill_.reset(); }

  // Fills usage and ledger of `finished`, which holds what the decode worker knows of its choice.
  // `prefill_worker` is empty when the decode worker prefilled.
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
    int32_t tokens_after_first = 0;  // in messages behind the first
  };
  int64_t first_token_us_ = 0;            // of all choices
  std::map<int32_t, Progress> progress_;  // by choice
  int64_t pull_us_ = 0;
  int32_t pulled_tokens_ = 0;
  std::string pull_source_;
  std::optional<v1::PrefillResponse> prefill_;
};

// What routing learns from a request whose ledger is complete. `decode_batch`: sequences on the
// decode worker when it was routed, this one included. Of a prefill that was planned elsewhere and
// not reported from there nothing is known.
FinishedRequest FinishedFromLedger(const RoutePlan& plan, int32_t decode_batch,
                                   bool prefill_reported, const v1::Finished& finished);

// What routing learns from a pull of `asked` tokens that took `us` here, as `receiver` tells of it.
FinishedPull FinishedFromPull(WorkerNumber receiver, int64_t us, int32_t asked,
                              const v1::PulledPrefix& told);

}  // namespace baton
