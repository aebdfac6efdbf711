#include "loadtest/load_summary.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

// Values of all records, by figure.
struct MeasuredValues {
  std::vector<double> ttft_ms;
  std::vector<double> itl_ms;
  std::vector<double> tpot_ms;
  std::vector<double> e2e_ms;
  std::vector<double> late_ms;
};

void AddWholeAnswer(const RequestRecord& record, MeasuredValues& values) {
  values.ttft_ms.push_back(record.ttft_ms());
  values.e2e_ms.push_back(record.e2e_ms());
  if (record.has_tpot()) values.tpot_ms.push_back(record.tpot_ms());
  for (const int32_t gap_us : record.gaps_us) values.itl_ms.push_back(gap_us / 1000.0);
}

void CountOutcome(const RequestRecord& record, LoadSummary& summary) {
  if (record.outcome == RequestOutcome::kWhole) {
    ++summary.whole;
    return;
  }
  ++(record.outcome == RequestOutcome::kRefused ? summary.refused : summary.failed);
  ++summary.errors[record.error];
  summary.error_examples.try_emplace(record.error, record.error_message);
}

double DurationSeconds(const std::vector<RequestRecord>& records) {
  if (records.empty()) return 0;
  int64_t begin_us = records.front().intended_us;
  int64_t end_us = records.front().end_us;
  for (const RequestRecord& record : records) {
    begin_us = std::min(begin_us, record.intended_us);
    end_us = std::max(end_us, record.end_us);
  }
  return static_cast<double>(end_us - begin_us) / 1e6;
}

void CheckValid(const LoadResult& result, LoadSummary& summary) {
  if (result.closed || summary.late_ms.count == 0) return;
  const double late_ms = summary.late_ms.p99;
  if (late_ms <= kMaxLateMs) return;
  const double limit_ms = kMaxLateShareOfTtft * summary.ttft_ms.p50;
  if (summary.ttft_ms.count > 0 && late_ms <= limit_ms) return;
  const std::string of_ttft =
      summary.ttft_ms.count > 0 ? absl::StrFormat(" and above 5 %% of ttft_p50_ms (%.3f)", limit_ms)
                                : " (no answer began, so there is no ttft_p50_ms)";
  summary.invalid_reasons.push_back(
      absl::StrFormat("late_p99_ms is %.3f, above %.0f ms%s: the load generator did not keep its "
                      "times",
                      late_ms, kMaxLateMs, of_ttft));
}

}  // namespace

LoadSummary SummaryOf(const LoadResult& result) {
  LoadSummary summary;
  MeasuredValues values;
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  bool tells_cached = false;
  for (const RequestRecord& record : result.records) {
    values.late_ms.push_back(record.late_ms());
    CountOutcome(record, summary);
    if (record.outcome != RequestOutcome::kWhole) continue;
    AddWholeAnswer(record, values);
    if (IsGood(record, result.objectives)) ++summary.good;
    output_tokens += record.output_tokens;
    if (record.cached_tokens < 0) continue;
    tells_cached = true;
    prompt_tokens += record.prompt_tokens;
    cached_tokens += record.cached_tokens;
  }
  summary.ttft_ms = DistributionOf(values.ttft_ms);
  summary.itl_ms = DistributionOf(values.itl_ms);
  summary.tpot_ms = DistributionOf(values.tpot_ms);
  summary.e2e_ms = DistributionOf(values.e2e_ms);
  summary.late_ms = DistributionOf(values.late_ms);
  summary.duration_s = DurationSeconds(result.records);
  summary.output_tokens_per_s = summary.PerSecond(static_cast<double>(output_tokens));
  if (tells_cached && prompt_tokens > 0) {
    summary.cached_token_share =
        static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  }
  if (result.wall_seconds > 0) {
    summary.harness_cpu_share = result.cpu_seconds / result.wall_seconds / result.processors;
  }
  CheckValid(result, summary);
  return summary;
}

}  // namespace baton
