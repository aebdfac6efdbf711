// Figures with goals: repeated measurements of one quantity, their median with its interval, and
// whether the goal is met.
//
// Adds keys to a figure of bench/figure_list.h: `low`, `high` (95 % interval of the median if there
// are at least six runs, else least and largest value), `runs`, `goal` (">= 40") and `met`.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/figure_list.h"
#include "bench/median_interval.h"

namespace baton {

struct Goal {
  enum class Kind : uint8_t { kAtLeast, kAtMost };
  Kind kind = Kind::kAtLeast;
  double limit = 0;

  bool MetBy(double value) const {
    return kind == Kind::kAtLeast ? value >= limit : value <= limit;
  }
  std::string Text() const { return absl::StrCat(kind == Kind::kAtLeast ? ">= " : "<= ", limit); }
};
inline Goal AtLeast(double limit) { return {.kind = Goal::Kind::kAtLeast, .limit = limit}; }
inline Goal AtMost(double limit) { return {.kind = Goal::Kind::kAtMost, .limit = limit}; }

// Adds and prints the median of `values`. Returns the figure's JSON object (FigureList::Add).
// REQUIRES: `values` is not empty.
inline nlohmann::json& AddMedian(FigureList& figures, const std::string& name,
                                 const std::vector<double>& values, const std::string& unit,
                                 std::optional<Goal> goal = std::nullopt) {
  const MedianInterval found = MedianOf(values);
  const std::string verdict =
      !goal ? "" : absl::StrCat(goal->Text(), goal->MetBy(found.median) ? "  met" : "  MISSED");
  std::printf("%-40s %12.4g  [%.4g, %.4g] %-10s %s\n", name.c_str(), found.median, found.low,
              found.high, unit.c_str(), verdict.c_str());
  std::fflush(stdout);
  nlohmann::json& figure =
      figures.Add(name, found.median, unit, goal ? std::optional(goal->limit) : std::nullopt);
  figure["low"] = found.low;
  figure["high"] = found.high;
  figure["runs"] = values.size();
  if (goal) {
    figure["goal"] = goal->Text();
    figure["met"] = goal->MetBy(found.median);
  }
  return figure;
}

// Quotients of two measurements that were made in the same rounds. REQUIRES: equal lengths.
inline std::vector<double> Quotients(const std::vector<double>& above,
                                     const std::vector<double>& below) {
  CHECK_EQ(above.size(), below.size());
  std::vector<double> quotients;
  for (size_t i = 0; i < above.size(); ++i) quotients.push_back(above[i] / below[i]);
  return quotients;
}

}  // namespace baton
