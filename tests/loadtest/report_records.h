// Results of load tests for tests of reports.
#pragma once

#include "loadtest/load_summary.h"

namespace baton {

// Requests every 50 ms, each with three tokens. The time to the first token is `ttft_ms` plus up to
// 9 ms.
inline LoadResult SomeResult(int64_t count, int64_t ttft_ms = 100) {
  LoadResult result;
  result.seed = 7;
  result.settings = {{"target", "grpc://fake:1"}};
  result.objectives.ttft_ms = 105;
  for (int64_t i = 0; i < count; ++i) {
    RequestRecord record;
    record.number = i;
    record.outcome = RequestOutcome::kWhole;
    record.intended_us = i * 50'000;
    record.sent_us = record.intended_us + 100;
    record.first_content_us = record.intended_us + ttft_ms * 1000 + i * 7919 % 10'000;
    record.gaps_us = {5'000, static_cast<int32_t>(5'000 + i % 3)};
    record.last_content_us = record.first_content_us + 10'000 + i % 3;
    record.end_us = record.last_content_us + 500;
    record.output_tokens = 3;
    record.prompt_tokens = 10;
    result.records.push_back(record);
  }
  return result;
}

}  // namespace baton
