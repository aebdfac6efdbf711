#include "loadtest/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/loadtest/report_records.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string PageOf(const LoadResult& result) { return HtmlReport(result, SummaryOf(result)); }

// Every element that is opened is closed, in order.
void ExpectBalanced(const std::string& page) {
  static const std::regex kTag("<(/?)([a-z0-9]+)[^>]*?(/?)>");
  std::vector<std::string> open;
  const std::string body = page.substr(page.find("<body>"));
  for (std::sregex_iterator at(body.begin(), body.end(), kTag), end; at != end; ++at) {
    const std::string name = (*at)[2];
    if ((*at)[3].length() > 0) continue;
    if ((*at)[1].length() == 0) {
      open.push_back(name);
    } else if (name != "html") {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(HtmlReport, LoadsNothingAndHasNoScript) {
  const std::string page = PageOf(SomeResult(200));
  for (const char* asset :
       {"<script", "<link", "<img", "src=", "href=", "url(", "@import", "http://", "https://"}) {
    EXPECT_THAT(page, Not(HasSubstr(asset)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  ExpectBalanced(page);
}

TEST(HtmlReport, HasEverySection) {
  LoadResult result = SomeResult(200);
  for (RequestRecord& record : result.records) {
    record.ledger = {{"tokenize_us", 100}, {"queue_us", 20'000}, {"prefill_us", 60'000}};
  }
  const std::string page = PageOf(result);
  for (const char* title : {"Figures", "Distributions", "Timeline", "Goodput", "Settings",
                            "Where the first token's time went", "prefill", "rest"}) {
    EXPECT_THAT(page, HasSubstr(title));
  }
  EXPECT_THAT(PageOf(SomeResult(2)), HasSubstr("The target sent no ledger."));
}

TEST(HtmlReport, StringsAreEscaped) {
  const std::string hostile = "<script>alert(1)</script>\"'&";
  LoadResult result = SomeResult(3);
  result.settings.emplace_back(hostile, hostile);
  result.conditions.push_back(hostile);
  result.max_rate_absent = hostile;
  result.records[0].outcome = RequestOutcome::kFailed;
  result.records[0].error = hostile;
  result.records[0].error_message = hostile;
  LoadSummary summary = SummaryOf(result);
  summary.invalid_reasons.push_back(hostile);
  const std::string page = HtmlReport(result, summary);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)"));
  ExpectBalanced(page);
}

TEST(HtmlReport, ARateSearchShowsItsRates) {
  LoadResult result = SomeResult(20);
  result.rate_steps = {{.rate_per_s = 1, .requests = 300, .good = 300},
                       {.rate_per_s = 2, .requests = 40, .good = 10}};
  result.max_rate = result.rate_steps[0];
  EXPECT_THAT(PageOf(result), HasSubstr("Share of good requests at each tried rate"));
  ExpectBalanced(PageOf(result));
}

TEST(HtmlReport, AnEmptyRunHasAPage) { ExpectBalanced(PageOf(LoadResult())); }

}  // namespace
}  // namespace baton
