#include "router/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RequestLogTest : public ::testing::Test {
 protected:
  RequestLog Log(int32_t lines_a_second) {
    return RequestLog(lines_a_second, &clock_, &metrics_,
                      [this](const std::string& line) { lines_.push_back(line); });
  }

  ManualClock clock_;
  MetricSet metrics_{MetricPrograms::kRouters};
  std::vector<std::string> lines_;
};

TEST_F(RequestLogTest, OneLineHasTheRequestsIdAndFigures) {
  RequestLog log = Log(5);
  log.Ended({.id = "r-1",
             .endpoint = Endpoint::kChatCompletions,
             .code = absl::StatusCode::kOk,
             .prompt_tokens = 12,
             .cached_tokens = 4,
             .tokens = 20,
             .first_token_us = 35'100,
             .total_us = 410'200,
             .prefill_worker = "prefill-0",
             .decode_worker = "decode-0"});
  log.Ended({.id = "r-2",
             .code = absl::StatusCode::kUnavailable,
             .total_us = 300,
             .decode_worker = "d",
             .error = "it \"died\""});
  EXPECT_THAT(lines_,
              ElementsAre("request id=\"r-1\" endpoint=chat_completions code=ok prompt_tokens=12 "
                          "cached_tokens=4 tokens=20 first_token_ms=35.1 total_ms=410.2 "
                          "prefill_worker=\"prefill-0\" decode_worker=\"decode-0\"",
                          "request id=\"r-2\" endpoint=generate code=unavailable prompt_tokens=0 "
                          "cached_tokens=0 tokens=0 total_ms=0.3 decode_worker=\"d\" "
                          "error=\"it \\\"died\\\"\""));
}

TEST_F(RequestLogTest, LinesAboveTheRateAreLeftOutAndCounted) {
  RequestLog log = Log(2);
  for (int i = 0; i < 25; ++i) log.Ended({.id = "r"});
  EXPECT_THAT(lines_, SizeIs(20)) << "those of ten seconds may come at once";
  EXPECT_EQ(metrics_.Cells(Metric::kLogLinesDropped), 5);
  lines_.clear();
  clock_.AdvanceUs(1'000'000);
  for (int i = 0; i < 3; ++i) log.Ended({.id = "later"});
  ASSERT_THAT(lines_, SizeIs(3));
  EXPECT_EQ(lines_[0], "5 lines about ended requests were left out (--request-log-lines)");
  EXPECT_THAT(lines_[1], HasSubstr("later"));
  EXPECT_EQ(metrics_.Cells(Metric::kLogLinesDropped), 6);
}

TEST_F(RequestLogTest, RefusedRequestsHaveLinesAndALimitOfTheirOwn) {
  RequestLog log = Log(1);
  const absl::Status status = absl::InvalidArgumentError("top_p is 9\n; (0, 1] is allowed");
  for (int i = 0; i < 12; ++i) log.Refused("r-3", Endpoint::kCompletions, status);
  ASSERT_THAT(lines_, SizeIs(10));
  EXPECT_EQ(lines_[0],
            "request id=\"r-3\" endpoint=completions code=invalid_argument "
            "refused=\"top_p is 9\\n; (0, 1] is allowed\"");
  EXPECT_EQ(metrics_.Cells(Metric::kLogLinesDropped), 2);
  log.Ended({.id = "r-4"});
  ASSERT_THAT(lines_, SizeIs(11));
  EXPECT_THAT(lines_[10], HasSubstr("r-4"));
}

TEST_F(RequestLogTest, IdsOfClientsCannotForgeALine) {
  RequestLog log = Log(5);
  log.Ended({.id = "a\"\nrequest id=\"b\" code=ok\x1b[2J"});
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr(R"(id="a\"\nrequest id=\"b\" code=ok\x1b[2J" endpoint=)"));
  lines_.clear();
  log.Ended({.id = std::string(10'000, 'x')});
  EXPECT_LT(lines_[0].size(), 1000);
}

TEST_F(RequestLogTest, CanBeOff) {
  RequestLog log = Log(0);
  log.Ended({.id = "r"});
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_EQ(metrics_.Cells(Metric::kLogLinesDropped), 0);
}

}  // namespace
}  // namespace baton
