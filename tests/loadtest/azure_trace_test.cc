#include "loadtest/azure_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string FaultOf(std::string_view line) {
  const auto request = ParseAzureLine(line, 3);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << line;
  return std::string(request.status().message());
}

TEST(AzureTrace, ALineIsARequest) {
  const auto request = ParseAzureLine("2023-11-16 18:17:03.9799600,4808,10\r", 2);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->prompt_tokens, 4808);
  EXPECT_EQ(request->output_tokens, 10);
  const auto next = ParseAzureLine("2023-11-16 18:17:04.0799600,1,0", 3);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->at_us - request->at_us, 100'000);
  EXPECT_EQ(next->output_tokens, 1);
}

TEST(AzureTrace, TimesMayHaveAZone) {
  const auto plain = ParseAzureLine("2024-05-10 00:00:00.009930,5,5", 2);
  const auto zoned = ParseAzureLine("2024-05-10 00:00:00.009930+00:00,5,5", 2);
  const auto east = ParseAzureLine("2024-05-10 01:00:00.009930+01:00,5,5", 2);
  ASSERT_TRUE(plain.ok() && zoned.ok() && east.ok());
  EXPECT_EQ(plain->at_us, zoned->at_us);
  EXPECT_EQ(plain->at_us, east->at_us);
}

TEST(AzureTrace, TheHeaderIsChecked) {
  EXPECT_TRUE(CheckAzureHeader("TIMESTAMP,ContextTokens,GeneratedTokens\r").ok());
  EXPECT_TRUE(CheckAzureHeader("\xEF\xBB\xBFTIMESTAMP,ContextTokens,GeneratedTokens").ok());
  EXPECT_THAT(std::string(CheckAzureHeader("a,b").message()),
              HasSubstr("line 1: the header is \"a,b\"; must be "));
}

TEST(AzureTrace, AFaultNamesLineFieldValueAndLimit) {
  EXPECT_THAT(FaultOf("2023-11-16 18:17:03,1"), HasSubstr("line 3: has 2 fields, must have 3"));
  EXPECT_THAT(FaultOf("yesterday,1,1"), HasSubstr("line 3: TIMESTAMP is \"yesterday\"; must be"));
  EXPECT_THAT(FaultOf("2023-11-16 18:17:03,0,1"),
              HasSubstr("ContextTokens is \"0\"; must be a whole number from 1 to 16777216"));
  EXPECT_THAT(FaultOf("2023-11-16 18:17:03,1,-1"),
              HasSubstr("GeneratedTokens is \"-1\"; must be a whole number from 0 to"));
  EXPECT_THAT(FaultOf("2023-11-16 18:17:03,1,99999999999999999999"), HasSubstr("GeneratedTokens"));
}

}  // namespace
}  // namespace baton
