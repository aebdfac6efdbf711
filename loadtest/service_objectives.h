// Service level objectives (SLO) of one answer. A good answer is whole and meets all of them.
//
// Thread safety: plain data; pure functions.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "loadtest/request_record.h"

namespace baton {

struct ServiceObjectives {
  std::optional<double> ttft_ms;  // at most
  std::optional<double> itl_ms;   // at least 99 % of the answer's gaps are at most this
  std::optional<double> tpot_ms;
  std::optional<double> e2e_ms;

  bool empty() const { return !ttft_ms && !itl_ms && !tpot_ms && !e2e_ms; }
};

inline constexpr double kMaxObjectiveMs = 86'400'000;

// Parses "ttft_ms=200,itl_ms=50". InvalidArgument names the objective, the value and the limit.
absl::StatusOr<ServiceObjectives> ParseObjectives(const std::string& text);
// Inverse of ParseObjectives.
std::string ObjectivesText(const ServiceObjectives& objectives);

// Returns the quantile 0.99 of the answer's gaps in milliseconds; 0 without gaps.
double GapP99Ms(const RequestRecord& record);

bool IsGood(const RequestRecord& record, const ServiceObjectives& objectives);

}  // namespace baton
