#include "loadtest/mooncake_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FaultOf(std::string_view line) {
  const auto request = ParseMooncakeLine(line, 7);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << line;
  return std::string(request.status().message());
}

TEST(MooncakeTrace, ALineIsARequest) {
  const auto request = ParseMooncakeLine(
      R"({"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]})",
      1);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->at_us, 27'482'000);
  EXPECT_EQ(request->prompt_tokens, 6955);
  EXPECT_EQ(request->output_tokens, 52);
  EXPECT_THAT(request->hash_ids, ElementsAre(46, 47));
}

TEST(MooncakeTrace, AnAnswerHasAToken) {
  const auto request = ParseMooncakeLine(
      R"({"timestamp": 0, "input_length": 1, "output_length": 0, "hash_ids": [0]})", 1);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->output_tokens, 1);
}

TEST(MooncakeTrace, AFaultNamesLineFieldValueAndLimit) {
  EXPECT_EQ(FaultOf("hello"), "line 7: is not a JSON object");
  EXPECT_EQ(FaultOf("[1]"), "line 7: is not a JSON object");
  EXPECT_EQ(FaultOf(R"({"timestamp": 0})"), "line 7: input_length is missing");
  EXPECT_THAT(
      FaultOf(R"({"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": [1]})"),
      HasSubstr("line 7: timestamp is -1; must be a whole number from 0 to "));
  EXPECT_THAT(
      FaultOf(R"({"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": [1]})"),
      HasSubstr("input_length is 0; must be a whole number from 1 to 16777216"));
  EXPECT_THAT(
      FaultOf(
          R"({"timestamp": 1, "input_length": 99999999999, "output_length": 1, "hash_ids": [1]})"),
      HasSubstr("input_length is 99999999999; must be a whole number from 1 to 16777216"));
  EXPECT_THAT(
      FaultOf(R"({"timestamp": 1, "input_length": 1, "output_length": "x", "hash_ids": [1]})"),
      HasSubstr("output_length is \"x\"; must be"));
  EXPECT_EQ(FaultOf(R"({"timestamp": 1, "input_length": 1, "output_length": 1})"),
            "line 7: hash_ids is missing");
  EXPECT_THAT(FaultOf(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": []})"),
              HasSubstr("hash_ids is []; must be an array of 1 to "));
  EXPECT_THAT(
      FaultOf(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1, -2]})"),
      AllOf(HasSubstr("hash_ids[1] is -2"), HasSubstr("from 0 to 2^64-1")));
}

TEST(MooncakeTrace, AFaultShowsHostileTextSafely) {
  const std::string fault = FaultOf(
      "{\"timestamp\": \"\\u001b[2J\", \"input_length\": 1, \"output_length\": 1, \"hash_ids\": "
      "[1]}");
  EXPECT_EQ(fault.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace baton
