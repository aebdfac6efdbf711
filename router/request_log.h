// Writes one log line for each request that has ended, with its id:
//
//   request id="req-1" endpoint=generate code=ok prompt_tokens=12 cached_tokens=0 tokens=20
//   first_token_ms=35.1 total_ms=410.2 prefill_worker="prefill-0" decode_worker="decode-0"
//
// (as one line; a request without a token has no first_token_ms). A refused request has a line too:
//
//   request id="req-2" endpoint=completions code=invalid_argument refused="top_p is 9; …"
//
// A rate limit keeps busy routers from flooding their logs. Refused requests have a limit of their
// own, so that clients without a key cannot displace the lines of others. Lines that are left out
// are counted in baton_log_lines_dropped_total. Text from clients and workers is escaped.
//
// Thread safety: every function, from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "metrics/metric_set.h"
#include "router/line_budget.h"

namespace baton {

class RequestLog {
 public:
  using Sink = std::function<void(const std::string& line)>;

  struct Entry {
    std::string_view id;
    Endpoint endpoint = Endpoint::kGenerate;
    absl::StatusCode code = absl::StatusCode::kOk;
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t tokens = 0;          // of all choices
    int64_t first_token_us = 0;  // since the request arrived; 0: there was none
    int64_t total_us = 0;
    std::string_view prefill_worker = {};  // empty: the decode worker computed the prompt
    std::string_view decode_worker = {};   // empty: none was chosen
    std::string_view error = {};           // empty: there was none
  };

  static Sink ToLog();
  // `lines_a_second`: of each kind; those of ten seconds may come at once. 0: no lines at all.
  // `clock` and `metrics` must outlive this; `metrics` may be null.
  RequestLog(int32_t lines_a_second, const Clock* clock, MetricSet* metrics, Sink sink = ToLog());

  void Ended(const Entry& entry);
  // A request for which no worker was chosen.
  void Refused(std::string_view id, Endpoint endpoint, const absl::Status& status);

 private:
  // Writes the line if the budget allows it.
  void Write(LineBudget& budget, std::string_view kind, absl::FunctionRef<std::string()> line);

  static constexpr int64_t kSecondsAtOnce = 10;  // lines of so many seconds may come at once

  const bool on_;
  const Clock* const clock_;
  MetricSet* const metrics_;
  const Sink sink_;
  std::mutex mutex_;
  LineBudget ended_;    // guarded by mutex_
  LineBudget refused_;  // guarded by mutex_
};

}  // namespace baton
