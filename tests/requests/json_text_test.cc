#include "requests/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/error_details.h"

namespace baton {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr JsonLimits kLimits = {.max_bytes = 1000, .max_depth = 3, .max_values = 20};

std::string Refusal(std::string_view line) {
  const absl::StatusOr<Json> json = ParseJson(line, 7, kLimits);
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << line;
  return std::string(json.status().message());
}

TEST(JsonText, ASyntaxErrorHasItsPlaceAndTheExpectedToken) {
  EXPECT_EQ(Refusal(R"({"a":1 "b":2})"),
            "line 7, column 8: not valid JSON: unexpected string literal; expected '}'");
  EXPECT_EQ(Refusal(R"({"a":1)"),
            "line 7, column 7: not valid JSON: unexpected end of input; expected '}'");
  EXPECT_THAT(Refusal(R"({"a":tru})"),
              StartsWith("line 7, column 9: not valid JSON: invalid literal"));
  EXPECT_THAT(Refusal(R"({"é" 1})"), StartsWith("line 7, column 6: "));
  EXPECT_THAT(Refusal("\"\xff\""), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(Refusal(""), StartsWith("line 7, column 1: "));
}

TEST(JsonText, TheWrongTokenIsNotRepeated) {
  const std::string secret = "\"" + std::string(500, 'x') + "\n\"";
  EXPECT_THAT(Refusal(secret), Not(HasSubstr("xxx")));
}

TEST(JsonText, LimitsHold) {
  EXPECT_EQ(Refusal(std::string(1001, ' ')), "line 7: it has 1001 bytes; at most 1000");
  EXPECT_EQ(Refusal("[1,[2,[3,[[4]]]]]"), "line 7, column 11: it is nested more than 3 deep");
  EXPECT_THAT(Refusal("[[[[[[[["), HasSubstr("nested more than 3"));
  EXPECT_THAT(Refusal("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]"),
              HasSubstr("more than 20 values"));
}

TEST(JsonText, AnOutlineLeavesOutDeeperValues) {
  const absl::StatusOr<Json> json =
      ParseJsonOutline(R"({"a":{"b":1,"c":{"d":[1,2]}},"e":[3]})", 1, 2);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["a"]["b"], 1);
  EXPECT_FALSE(json->dump().find("\"d\"") != std::string::npos);
  EXPECT_EQ(ParseJsonOutline("{", 1, 2).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(JsonText, APlaceHasANameAndAColumn) {
  const std::string line = R"( {"a" : {"x\"y":[10, {"b":2}]}, "c":3})";
  const JsonPlace root(line, 4);
  const JsonPlace a = root.Member("a");
  const JsonPlace key = a.Member("x\"y");
  const JsonPlace one = key.Element(1);
  const JsonPlace b = one.Member("b");
  EXPECT_EQ(b.Name(), "a.x\"y[1].b");
  const auto column = [](const absl::Status& status) { return std::string(status.message()); };
  EXPECT_EQ(column(root.Fault("m")), "line 4, column 2: m");
  EXPECT_EQ(column(a.Fault("m")), "line 4, column 9: m");
  EXPECT_EQ(column(a.FaultAtKey("m")), "line 4, column 3: m");
  EXPECT_EQ(column(key.FaultAtKey("m")), "line 4, column 10: m");
  EXPECT_EQ(column(one.Fault("m")), "line 4, column 22: m");
  EXPECT_EQ(column(b.FaultOf("m")), "line 4, column 27: \"a.x\"y[1].b\" m");
  EXPECT_EQ(column(root.Member("c").Fault("m")), "line 4, column 37: m");
  // An absent member has the place of its object.
  EXPECT_EQ(column(root.Member("z").Fault("m")), "line 4, column 2: m");
}

TEST(JsonText, TheLastOfEqualKeysCountsAndGivesThePlace) {
  const std::string line = R"({"a":1,"a":2})";
  EXPECT_EQ((*ParseJson(line, 1, kLimits))["a"], 2);
  EXPECT_THAT(std::string(JsonPlace(line, 1).Member("a").Fault("m").message()),
              HasSubstr("column 12"));
}

TEST(JsonText, AFaultOfADocumentHasOnlyTheMessageAndTheName) {
  const std::string text = "{\n \"a\": [1,\n 2]}";
  const JsonPlace root(text, kNotALine);
  const JsonPlace a = root.Member("a");
  const absl::Status fault = a.Element(1).FaultOf("is wrong");
  EXPECT_EQ(fault.message(), "\"a[1]\" is wrong");
  EXPECT_EQ(ErrorParam(fault), "a[1]");
  EXPECT_EQ(a.Element(1).NameWithoutIndexes(), "a[]");
  EXPECT_EQ(ErrorParam(root.Fault("m")), "");
}

TEST(JsonText, ADocumentThatIsNotJsonIsRefusedWithLineAndColumn) {
  const auto refusal = [](const std::string& text) {
    return std::string(ParseJson(text, kNotALine, kLimits).status().message());
  };
  EXPECT_THAT(refusal("{\n \"é\": 1\n \"b\": 2}"),
              StartsWith("line 3, column 2: not valid JSON: "));
  EXPECT_THAT(refusal("{\"a\": \"\xff\"}"), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(refusal("[1,\n[2,[3,[[4]]]]]"),
              StartsWith("line 2, column 8: it is nested more than"));
  EXPECT_EQ(refusal(std::string(1001, ' ')), "the JSON has 1001 bytes; at most 1000");
  EXPECT_EQ(refusal("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]"),
            "the JSON holds more than 20 values");
}

// Damaged lines give a fault within the line, without a crash.
TEST(JsonText, DamagedLinesHaveAFaultInside) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string whole = R"({"a":[1,2,{"b":"c\u00e9\\"}],"d":{"e":null},"f":-1.5e3})";
  const std::string bytes = "{}[],:\"\\ 1e.-tn\xc3\n" + std::string(1, '\0');
  for (int i = 0; i < 20000; ++i) {
    std::string line = whole;
    for (int strikes = 1 + static_cast<int>(random() % 3); strikes > 0; --strikes) {
      line[random() % line.size()] = bytes[random() % bytes.size()];
    }
    line.resize(random() % 4 == 0 ? random() % (line.size() + 1) : line.size());
    const absl::StatusOr<Json> json = ParseJson(line, 7, kLimits);
    if (!json.ok()) {
      EXPECT_THAT(std::string(json.status().message()), StartsWith("line 7, column "));
    }
    const JsonPlace root(line, 7);
    const JsonPlace a = root.Member("a");
    const JsonPlace two = a.Element(2);
    EXPECT_FALSE(two.Member("b").Fault("m").ok());
  }
}

}  // namespace
}  // namespace baton
