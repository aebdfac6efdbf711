#include "loadtest/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/loadtest/report_records.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LoadReport, TheLastLineHasExactlyTheFiguresThatScriptsRead) {
  const LoadResult result = SomeResult(50);
  const std::string line = JsonText(FiguresJson(result, SummaryOf(result)));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["bench"], "load");
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["valid"], true);
  std::vector<std::string> names;
  for (const auto& figure : json["figures"]) {
    names.push_back(figure["name"]);
    EXPECT_TRUE(figure.contains("unit") && figure.contains("limit") && figure.contains("ratio"));
    EXPECT_EQ(figure["value"].is_null(), figure.contains("absent")) << figure;
  }
  EXPECT_THAT(
      names, ElementsAre("ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms", "tpot_p50_ms",
                         "e2e_p99_ms", "output_tokens_per_s", "goodput_per_s", "goodput_share",
                         "cached_token_share", "requests_ok", "requests_refused", "requests_failed",
                         "max_rate_per_s", "late_p99_ms", "harness_cpu_share"));
}

TEST(LoadReport, AFigureThatWasNotMeasuredSaysWhy) {
  LoadResult result = SomeResult(3);
  result.closed = true;
  result.objectives = {};
  const auto json = FiguresJson(result, SummaryOf(result));
  const auto absent = [&](const std::string& name) -> std::string {
    for (const auto& figure : json["figures"]) {
      if (figure["name"] == name) return figure.value("absent", "measured");
    }
    return "no such figure";
  };
  EXPECT_EQ(absent("late_p99_ms"), "not measured: closed arrivals have no lateness");
  EXPECT_EQ(absent("goodput_per_s"), "not measured: needs --slo");
  EXPECT_EQ(absent("max_rate_per_s"), "not measured: needs --find-rate");
  EXPECT_EQ(absent("ttft_p50_ms"), "measured");
}

TEST(LoadReport, TheHighestRateHasItsConfidence) {
  LoadResult result = SomeResult(3);
  result.max_rate = RateStep{.rate_per_s = 2, .requests = 300, .good = 300};
  const auto figures = FiguresJson(result, SummaryOf(result));
  for (const auto& figure : figures["figures"]) {
    EXPECT_EQ(figure.contains("confidence"), figure["name"] == "max_rate_per_s");
    if (!figure.contains("confidence")) continue;
    EXPECT_NEAR(figure["confidence"].get<double>(), 0.951, 1e-3);
  }
}

TEST(LoadReport, AnEmptyRunHasAReport) {
  const LoadResult result;
  const auto json = nlohmann::json::parse(JsonText(ReportJson(result, SummaryOf(result))));
  EXPECT_TRUE(json["timeline"].empty());
  EXPECT_THAT(LoadTable(result, SummaryOf(result)), HasSubstr("0 ok, 0 refused, 0 failed"));
  EXPECT_THAT(LoadTable(result, SummaryOf(result)), Not(HasSubstr("load generator")))
      << "a simulation has none";
}

TEST(LoadReport, TheReportHasSamplesOfEveryRequest) {
  LoadResult result = SomeResult(10);
  result.records[3].outcome = RequestOutcome::kRefused;
  result.records[3].error = "429 \"<b>\"";
  const auto json = nlohmann::json::parse(JsonText(ReportJson(result, SummaryOf(result))));
  EXPECT_EQ(json["samples"]["ok"].size(), 10u);
  EXPECT_EQ(json["samples"]["itl_ms"].size(), 10u);
  EXPECT_TRUE(json["samples"]["ttft_ms"][3].is_null());
  EXPECT_EQ(json["errors"][0]["kind"], "429 \"<b>\"");
  EXPECT_EQ(json["settings"]["target"], "grpc://fake:1");
}

TEST(LoadReport, ARecordIsOneLine) {
  RequestRecord record = SomeResult(1).records[0];
  record.ledger = {{"queue_us", 12}};
  const auto json = nlohmann::json::parse(JsonText(RecordJson(record)));
  EXPECT_EQ(json["outcome"], "ok");
  EXPECT_EQ(json["ledger"]["queue_us"], 12);
  EXPECT_EQ(json["itl_ms"].size(), record.gaps_us.size());
  EXPECT_TRUE(json["cached_tokens"].is_null());
  record.outcome = RequestOutcome::kFailed;
  record.first_content_us = -1;
  record.error = "INTERNAL";
  record.error_message = "bad \xFF byte";
  const std::string line = JsonText(RecordJson(record));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(line)["ttft_ms"].is_null());
}

TEST(LoadReport, TheTimelineCountsEveryRequestOnce) {
  for (const int64_t count : {1, 7, 400}) {
    const LoadResult result = SomeResult(count);
    int64_t sent = 0;
    int64_t ended = 0;
    int64_t tokens = 0;
    const auto parts = TimelineOf(result.records);
    EXPECT_LE(parts.size(), 61u);
    for (const TimelinePart& part : parts) {
      sent += part.sent;
      ended += part.whole;
      tokens += part.output_tokens;
    }
    EXPECT_EQ(sent, count);
    EXPECT_EQ(ended, count);
    EXPECT_EQ(tokens, 3 * count);
  }
}

TEST(LoadReport, TheTableShowsWhatAReaderMustKnow) {
  LoadResult result = SomeResult(20);
  result.records[0].outcome = RequestOutcome::kFailed;
  result.records[0].error = "INTERNAL";
  result.records[0].error_message = "a fault";
  result.clipped = {.requests = 2, .prompt_tokens = 30, .output_tokens = 4, .conversations = 1};
  result.max_rate = RateStep{.rate_per_s = 12.5, .requests = 300, .good = 300};
  LoadSummary summary = SummaryOf(result);
  summary.invalid_reasons = {"it was late"};
  const std::string table = LoadTable(result, summary);
  EXPECT_THAT(table, HasSubstr("1 × INTERNAL: a fault"));
  EXPECT_THAT(table, HasSubstr("2 requests by 30 prompt tokens and 4 output tokens; 1 conv"));
  EXPECT_THAT(table, HasSubstr("12.500 requests/s (300 of 300 good; confidence 95.1 %)"));
  EXPECT_THAT(table, HasSubstr("not valid: it was late"));
}

}  // namespace
}  // namespace baton
