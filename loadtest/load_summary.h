// Figures of a load test, computed from its records.
//
// Quantiles are exact, over whole answers. Refused and failed requests are counted beside them, and
// count as not good. Times begin at the intended send.
//
// Thread safety: plain data; pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loadtest/load_run.h"
#include "loadtest/quantiles.h"
#include "loadtest/rate_search.h"
#include "loadtest/request_record.h"
#include "loadtest/service_objectives.h"

namespace baton {

// A run is not valid if the load generator was late: above both limits, the lateness is a part of
// the measured times that a reader would take for the service's.
inline constexpr double kMaxLateMs = 2;
inline constexpr double kMaxLateShareOfTtft = 0.05;

// A figure besides those that every load test has.
struct MoreFigure {
  std::string name;
  std::optional<double> value;
  std::string unit;
  std::string absent;  // why there is no value
};

// All that a load test knows when it has ended.
struct LoadResult {
  std::string bench = "load";  // name of the benchmark in the JSON forms
  std::vector<std::pair<std::string, std::string>> settings;  // name and value, for readers
  std::vector<std::string> conditions;  // sentences that a reader must know to judge the figures
  uint64_t seed = 0;
  std::vector<RequestRecord> records;  // in the order of intended sends, without the warm-up
  ServiceObjectives objectives;
  bool closed = false;      // closed arrivals: there is no lateness
  double cpu_seconds = 0;   // processor time of the load generator
  double wall_seconds = 0;  // in which it was used
  int32_t processors = 1;   // that the load generator may use
  ClipCounts clipped;
  std::vector<RateStep> rate_steps;                   // of a rate search
  std::optional<RateStep> max_rate;                   // its result
  std::string max_rate_absent = "needs --find-rate";  // why there is none
  std::vector<MoreFigure> more_figures = {};
};

struct LoadSummary {
  Distribution ttft_ms;
  Distribution itl_ms;
  Distribution tpot_ms;
  Distribution e2e_ms;
  Distribution late_ms;  // of all requests
  int64_t whole = 0;
  int64_t refused = 0;
  int64_t failed = 0;
  int64_t good = 0;       // of whole answers; all of them without objectives
  double duration_s = 0;  // first intended send to last end
  double output_tokens_per_s = 0;
  std::optional<double> cached_token_share;  // absent if the target does not tell
  double harness_cpu_share = 0;              // of the processors that the load generator may use
  std::map<std::string, int64_t> errors;     // by kind
  std::map<std::string, std::string> error_examples;  // a message of each kind
  std::vector<std::string> invalid_reasons;           // empty: the run is valid

  int64_t requests() const { return whole + refused + failed; }
  double PerSecond(double count) const { return duration_s > 0 ? count / duration_s : 0; }
};

LoadSummary SummaryOf(const LoadResult& result);

}  // namespace baton
