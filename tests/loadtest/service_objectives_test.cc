#include "loadtest/service_objectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string FaultOf(const std::string& text) {
  return std::string(ParseObjectives(text).status().message());
}

RequestRecord WholeAnswer() {
  RequestRecord record;
  record.outcome = RequestOutcome::kWhole;
  record.intended_us = 0;
  record.first_content_us = 100'000;
  record.last_content_us = 300'000;
  record.end_us = 310'000;
  record.output_tokens = 5;
  record.gaps_us = {20'000, 20'000, 20'000, 140'000};
  return record;
}

TEST(ServiceObjectives, TextIsParsedAndPrinted) {
  const auto objectives = ParseObjectives("itl_ms=50,ttft_ms=200.5");
  ASSERT_TRUE(objectives.ok()) << objectives.status();
  EXPECT_EQ(ObjectivesText(*objectives), "ttft_ms=200.5,itl_ms=50");
  EXPECT_TRUE(ServiceObjectives().empty());
  EXPECT_EQ(ObjectivesText({}), "");
}

TEST(ServiceObjectives, AFaultNamesTheObjectiveTheValueAndTheLimit) {
  EXPECT_THAT(FaultOf("ttft=5"), HasSubstr("\"ttft\" is no objective; the objectives are ttft_ms"));
  EXPECT_THAT(FaultOf(""), HasSubstr("\"\" is no objective"));
  EXPECT_THAT(FaultOf("ttft_ms=5,"), HasSubstr("\"\" is no objective"));
  EXPECT_THAT(FaultOf("ttft_ms"), HasSubstr("ttft_ms is \"\"; must be above 0"));
  EXPECT_THAT(FaultOf("ttft_ms=0"), HasSubstr("ttft_ms is \"0\"; must be above 0 and at most"));
  EXPECT_THAT(FaultOf("itl_ms=nan"), HasSubstr("itl_ms is \"nan\""));
  EXPECT_THAT(FaultOf("e2e_ms=1e99"), HasSubstr("at most 86400000"));
  EXPECT_THAT(FaultOf("ttft_ms=1,ttft_ms=2"), HasSubstr("ttft_ms is given twice"));
}

TEST(ServiceObjectives, AGoodAnswerIsWholeAndMeetsAllOfThem) {
  const RequestRecord record = WholeAnswer();
  EXPECT_TRUE(IsGood(record, {}));
  EXPECT_TRUE(IsGood(record, *ParseObjectives("ttft_ms=100,tpot_ms=50,e2e_ms=310,itl_ms=140")));
  EXPECT_FALSE(IsGood(record, *ParseObjectives("ttft_ms=99.9")));
  EXPECT_FALSE(IsGood(record, *ParseObjectives("tpot_ms=49.9")));
  EXPECT_FALSE(IsGood(record, *ParseObjectives("e2e_ms=309")));
  EXPECT_FALSE(IsGood(record, *ParseObjectives("itl_ms=139")));
  RequestRecord refused = record;
  refused.outcome = RequestOutcome::kRefused;
  EXPECT_FALSE(IsGood(refused, {}));
}

TEST(ServiceObjectives, OneGapInAHundredMayBeLonger) {
  RequestRecord record = WholeAnswer();
  record.gaps_us.assign(100, 10'000);
  record.gaps_us[7] = 900'000;
  EXPECT_EQ(GapP99Ms(record), 10);
  record.gaps_us[8] = 900'000;
  EXPECT_EQ(GapP99Ms(record), 900);
  record.gaps_us.clear();
  EXPECT_EQ(GapP99Ms(record), 0);
}

}  // namespace
}  // namespace baton
