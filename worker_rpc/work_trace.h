// The spans that a worker makes for one call, as parts of the request's span at the router:
//
//   queue      in this worker's queue, if it computed the prompt
//   prefill    first chunk of the prompt scheduled to last chunk done
//   transfer   decode worker: as long as the KV transfer was busy; ends when the KV was verified
//   decode     first token to the end of the last choice
//
// A call that fails has one span, which ends with its error: decode, or prefill if no token came.
//
// The times within a call come from the engine's ledger. Nothing is measured twice.
//
// Thread safety: the functions of one object must not run at the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "tracing/tracer.h"

namespace baton {

class WorkTrace {
 public:
  // `trace_parent`: from the router; if it is empty or invalid, the call is the root of a trace.
  // `tracer` must outlive this; null: nothing is recorded.
  WorkTrace(const Tracer* tracer, std::string_view trace_parent, int64_t now_us);

  // Of a Decode call.
  void TokensArrived(int64_t now_us);
  void ChoiceFinished(const FinishInfo& info);
  void DecodeEnded(const absl::Status& status, int64_t now_us);

  // Of a Prefill call.
  void PrefillEnded(const absl::StatusOr<PrefillResult>& result, int64_t now_us);

 private:
  Span Part(std::string_view name, int64_t begin_us, int64_t end_us) const;
  void RecordPrompt(int64_t queue_us, int64_t prefill_us, int64_t cached_tokens,
                    int64_t computed_tokens, int64_t end_us) const;
  void RecordTransfer(const RequestLedger& ledger) const;

  const Tracer* const tracer_;
  const int64_t arrived_us_;
  std::optional<TraceContext> parent_;  // set if the spans are recorded
  uint64_t parent_span_ = 0;
  int64_t first_token_us_ = 0;
  int64_t output_tokens_ = 0;
  std::optional<RequestLedger> ledger_;  // of the first choice that finished
};

}  // namespace baton
