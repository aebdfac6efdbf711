#include "loadtest/report_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loadtest/load_report.h"
#include "loadtest/seeded_random.h"
#include "tests/loadtest/report_records.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

ReportSamples SamplesOf(const LoadResult& result) {
  const auto samples = ParseReport(JsonText(ReportJson(result, SummaryOf(result))));
  EXPECT_TRUE(samples.ok()) << samples.status();
  return *samples;
}

const FigureDifference& Named(const std::vector<FigureDifference>& differences,
                              const std::string& name) {
  for (const FigureDifference& difference : differences) {
    if (difference.name == name) return difference;
  }
  ADD_FAILURE() << "there is no " << name;
  return differences.front();
}

TEST(ReportComparison, FiguresAreThoseOfTheReports) {
  const LoadResult result = SomeResult(200);
  const LoadSummary summary = SummaryOf(result);
  const auto differences = CompareReports(SamplesOf(result), SamplesOf(result));
  EXPECT_NEAR(*Named(differences, "ttft_p50_ms").a, summary.ttft_ms.p50, 1e-9);
  EXPECT_NEAR(*Named(differences, "ttft_p99_ms").a, summary.ttft_ms.p99, 1e-9);
  EXPECT_NEAR(*Named(differences, "itl_p99_ms").b, summary.itl_ms.p99, 1e-9);
  EXPECT_NEAR(*Named(differences, "tpot_p50_ms").b, summary.tpot_ms.p50, 1e-9);
  EXPECT_NEAR(*Named(differences, "e2e_p99_ms").b, summary.e2e_ms.p99, 1e-9);
  EXPECT_NEAR(*Named(differences, "output_tokens_per_s").a, summary.output_tokens_per_s, 1e-9);
  EXPECT_NEAR(*Named(differences, "goodput_per_s").a,
              summary.PerSecond(static_cast<double>(summary.good)), 1e-9);
  EXPECT_FALSE(Named(differences, "cached_token_share").a.has_value());
}

TEST(ReportComparison, ADifferenceIsClearIfItsIntervalDoesNotHoldZero) {
  const ReportSamples slow = SamplesOf(SomeResult(200, 120));
  const ReportSamples fast = SamplesOf(SomeResult(200, 100));
  const auto differences = CompareReports(slow, fast);
  const FigureDifference& ttft = Named(differences, "ttft_p50_ms");
  EXPECT_TRUE(ttft.is_clear());
  EXPECT_LT(ttft.low, -20.0);
  EXPECT_GT(ttft.high, -20.5);
  EXPECT_FALSE(Named(differences, "itl_p50_ms").is_clear());
  const auto json = ComparisonJson(slow, fast, differences);
  EXPECT_EQ(json["bench"], "load_compare");
  EXPECT_EQ(json["figures"][1]["verdict"], "better");
  EXPECT_EQ(ComparisonJson(fast, slow, CompareReports(fast, slow))["figures"][1]["verdict"],
            "worse");
  EXPECT_THAT(ComparisonTable({}, differences), HasSubstr("better"));
  EXPECT_EQ(json["figures"][0]["name"], "ok_share");
  EXPECT_EQ(json["figures"][0]["verdict"], "equal");
}

TEST(ReportComparison, FailuresAreCompared) {
  const ReportSamples good = SamplesOf(SomeResult(100));
  ReportSamples bad = good;
  bad.ok.assign(bad.ok.size(), false);
  const auto differences = CompareReports(good, bad);
  EXPECT_EQ(*Named(differences, "ok_share").b, 0);
  EXPECT_EQ(ComparisonJson(good, bad, differences)["figures"][0]["verdict"],
            "different; no interval");
}

TEST(ReportComparison, WarnsOfOtherLoadsAndInvalidReports) {
  ReportSamples a = SamplesOf(SomeResult(10));
  EXPECT_THAT(ComparisonWarnings(a, a), ::testing::IsEmpty());
  ReportSamples b = a;
  a.settings = {
      {"target", "x"}, {"rate", "20"}, {"arrivals", "poisson"}, {"routing-policy", "random"}};
  b.settings = {{"target", "y"}, {"rate", "10\x1b"}, {"arrivals", "poisson"}, {"turns", "3"}};
  b.valid = false;
  b.seed = a.seed + 1;
  const auto warnings = ComparisonWarnings(a, b);
  EXPECT_THAT(warnings, ::testing::ElementsAre("report B is not valid",
                                               "the loads differ: rate is 20 in A and 10\\x1b in B",
                                               "the loads differ: turns is not set in A and 3 in B",
                                               HasSubstr("the seed is ")));
  const auto differences = CompareReports(a, b);
  EXPECT_THAT(ComparisonTable(warnings, differences), HasSubstr("warning: report B"));
  EXPECT_EQ(ComparisonJson(a, b, differences)["conditions"].size(), 4u);
}

// Two runs of the same service, whose requests are slow in groups as in a queue. In most of the
// pairs of runs, the interval must hold the true difference of 0.
TEST(ReportComparison, EqualServicesRarelyDifferClearly) {
  int clear = 0;
  constexpr int kPairs = 20;
  for (uint64_t seed = 0; seed < kPairs; ++seed) {
    SeededRandom random(seed);
    const auto run = [&random] {
      LoadResult result = SomeResult(200);
      double slow_ms = 0;
      for (RequestRecord& record : result.records) {
        slow_ms = 0.8 * slow_ms + random.Exponential(10);
        record.first_content_us =
            record.intended_us + 100'000 + static_cast<int64_t>(slow_ms * 1000);
        record.last_content_us = record.first_content_us + 10'000;
        record.end_us = record.last_content_us;
      }
      return SamplesOf(result);
    };
    const ReportSamples a = run();
    const ReportSamples b = run();
    clear += Named(CompareReports(a, b), "ttft_p50_ms").is_clear();
  }
  EXPECT_LE(clear, kPairs / 5) << "of the pairs of equal services, too many differ clearly";
}

TEST(ReportComparison, AFileThatIsNoReportIsNamed) {
  const auto fault = [](std::string_view text) {
    return std::string(ParseReport(text).status().message());
  };
  EXPECT_THAT(fault("hello"), HasSubstr("the file must be a report that"));
  EXPECT_THAT(fault("{}"), HasSubstr("the file must be a report that"));
  EXPECT_THAT(fault(R"({"bench":"load"})"), HasSubstr("samples must be an object"));
  EXPECT_THAT(fault(R"({"bench":"load","samples":{}})"), HasSubstr("duration_s must be a number"));
  EXPECT_THAT(fault(R"({"bench":"load","samples":{},"duration_s":1})"),
              HasSubstr("samples.ok must be a list of 1 to "));
  EXPECT_THAT(fault(R"({"bench":"load","samples":{"ok":[true,true]},"duration_s":1})"),
              HasSubstr("samples.good must be a list of 2 values"));
  EXPECT_THAT(fault(R"({"bench":"load","samples":{"ok":[5]},"duration_s":1})"),
              HasSubstr("samples.ok must be a list of booleans"));
}

// Damaged reports must be refused or read, never crash.
TEST(ReportComparison, DamagedReportsDoNotCrash) {
  const LoadResult result = SomeResult(5);
  const std::string report = JsonText(ReportJson(result, SummaryOf(result)));
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SeededRandom random(seed);
    std::string damaged = report;
    for (int i = 0; i < 3; ++i) {
      damaged[random.Below(damaged.size())] = "[]{}\",:0a"[random.Below(9)];
    }
    const auto samples = ParseReport(damaged);
    if (samples.ok()) CompareReports(*samples, *samples);
  }
}

}  // namespace
}  // namespace baton
