// Forms of a load test's result: a table for a terminal, one JSON line as every benchmark's last
// line, a JSON report, and one JSON line for each request.
//
//   {"bench": "load", "seed": …, "conditions": […], "valid": true, "invalid_reasons": [],
//    "figures": [{"name", "value", "unit", "limit", "ratio"}]}
//
// A figure that was not measured has the value null, and the reason under `absent`. max_rate_per_s
// has a `confidence` besides. A simulation has the bench "simulate" and more figures. The report
// adds
// `settings`, `objectives`, `distributions`, `errors`, `clipped`, `timeline`, `rates` and
// `samples`.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loadtest/load_summary.h"

namespace baton {

// The part of the report that is the last line of the output.
nlohmann::ordered_json FiguresJson(const LoadResult& result, const LoadSummary& summary);
nlohmann::ordered_json ReportJson(const LoadResult& result, const LoadSummary& summary);
nlohmann::ordered_json RecordJson(const RequestRecord& record);
// One line without its newline. Invalid UTF-8 is replaced.
std::string JsonText(const nlohmann::ordered_json& json);

// Several lines, each with a newline.
std::string LoadTable(const LoadResult& result, const LoadSummary& summary);

// Equal parts of the run's time, at most 60, each a whole number of milliseconds long.
struct TimelinePart {
  double begin_s = 0;
  double length_s = 0;
  int64_t sent = 0;   // intended in this part
  int64_t whole = 0;  // ended in this part
  int64_t refused = 0;
  int64_t failed = 0;
  int64_t output_tokens = 0;    // of answers that ended in this part
  std::vector<double> ttft_ms;  // of whole answers that were intended in this part
};
std::vector<TimelinePart> TimelineOf(const std::vector<RequestRecord>& records);

}  // namespace baton
