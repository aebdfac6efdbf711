// Compares two reports of load tests, with a 95 % interval for each difference.
//
// Requests of one run are not independent: a queue makes neighbours slow together. So the intervals
// come from a block bootstrap (Künsch, 1989): blocks of neighbouring requests, each a twentieth of
// the run, are drawn with replacement.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// What the comparison needs of a report. Every list has a value for each request, in the order of
// intended sends; a figure that an answer does not have is absent.
struct ReportSamples {
  bool valid = true;
  uint64_t seed = 0;
  double duration_s = 0;
  std::vector<bool> ok;
  std::vector<bool> good;
  std::vector<std::optional<double>> ttft_ms;
  std::vector<std::optional<double>> tpot_ms;
  std::vector<std::optional<double>> e2e_ms;
  std::vector<double> output_tokens;
  std::vector<double> prompt_tokens;
  std::vector<double> cached_tokens;  // negative: not told
  std::vector<std::vector<double>> itl_ms;
  bool has_objectives = false;
  std::map<std::string, std::string> settings;  // of the load, by name
};

// Reads an untrusted report. InvalidArgument names the field.
absl::StatusOr<ReportSamples> ParseReport(std::string_view text);

struct FigureDifference {
  std::string name;
  std::string unit;
  std::optional<double> a;  // absent: the report does not have it
  std::optional<double> b;
  // Interval of b - a; only if both are there.
  double low = 0;
  double high = 0;
  bool higher_is_better = false;

  // False if all drawn samples agree, as the rate of answers of equal length does.
  bool has_interval() const { return a && b && low < high; }
  bool is_clear() const { return has_interval() && (low > 0 || high < 0); }
};

std::vector<FigureDifference> CompareReports(const ReportSamples& a, const ReportSamples& b);

// Sentences on why the differences may say nothing about the services: a report is not valid, or
// the loads differ.
std::vector<std::string> ComparisonWarnings(const ReportSamples& a, const ReportSamples& b);

// {"bench": "load_compare", "seed", "conditions", "figures": [{"name", "value": b - a, "unit",
//  "limit": null, "ratio": b / a, "a", "b", "low", "high", "verdict"}]}
nlohmann::ordered_json ComparisonJson(const ReportSamples& a, const ReportSamples& b,
                                      const std::vector<FigureDifference>& differences);
// Several lines, each with a newline; the warnings first.
std::string ComparisonTable(const std::vector<std::string>& warnings,
                            const std::vector<FigureDifference>& differences);

}  // namespace baton
