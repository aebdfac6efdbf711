#include "openai/json_output.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace baton {
namespace {

using Json = nlohmann::json;

TEST(JsonOutput, CommasStandBetweenValuesAndMembers) {
  JsonOutput out;
  out.BeginObject().Key("a").BeginArray().Integer(1).Text(":").Text("[").Null().EndArray();
  out.Key("b").BeginObject().EndObject().Key("c").Bool(true).TextKey("d\"").Raw("[2]").EndObject();
  EXPECT_EQ(out.Take(), R"({"a":[1,":","[",null],"b":{},"c":true,"d\"":[2]})");
  EXPECT_TRUE(out.empty());
}

TEST(JsonOutput, ElementsWithoutBracketsGetCommasToo) {
  JsonOutput out;
  out.Integer(1).Text("x").BeginObject().EndObject();
  EXPECT_EQ(out.Take(), R"(1,"x",{})");
}

TEST(JsonOutput, EveryByteOfATextIsEscapedOrReplaced) {
  std::string bytes;
  for (int byte = 0; byte < 128; ++byte) bytes += static_cast<char>(byte);
  bytes += "\xC3\xA9\xF0\x9F\x98\x80";
  JsonOutput out;
  out.Text(bytes);
  const std::string json = out.Take();
  EXPECT_EQ(Json::parse(json), bytes);
  EXPECT_EQ(json.find('\n'), std::string::npos) << "a line break would end a server-sent event";
  out.Text("a\xFF\"");
  EXPECT_EQ(out.Take(), "\"a\xEF\xBF\xBD\\\"\"");
}

TEST(JsonOutput, RandomTextSurvives) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int length = static_cast<int>(random() % 12); length > 0; --length) {
      const char* const pieces[] = {
          "a", "\"", "\\", "\n", "\xE2\x82\xAC", "\x01", "\xF0\x9F\x98\x80"};
      text += pieces[random() % std::size(pieces)];
    }
    JsonOutput out;
    out.Text(text);
    EXPECT_EQ(Json::parse(out.Take()), text);
  }
}

TEST(JsonOutput, ALogprobHasFewDigitsAndIsFinite) {
  const auto written = [](float value) {
    JsonOutput out;
    out.Logprob(value);
    return out.Take();
  };
  EXPECT_EQ(written(-0.1f), "-0.1");
  EXPECT_EQ(written(0), "0");
  EXPECT_EQ(written(-std::numeric_limits<float>::infinity()), "-9999.0");
  EXPECT_EQ(written(NAN), "-9999.0");
  for (const float value : {-1e-30f, -123456.7f, -3.4e38f}) {
    EXPECT_EQ(Json::parse(written(value)).get<float>(), value);
  }
}

}  // namespace
}  // namespace baton
