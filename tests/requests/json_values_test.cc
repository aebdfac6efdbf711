#include "requests/json_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/error_details.h"
#include "common/request_bounds.h"

namespace baton {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const JsonPlace kRoot("{}", kNotALine);

template <typename Value>
std::string Refusal(const absl::StatusOr<Value>& value) {
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(value.status().message());
}

TEST(JsonValues, ATextAndABooleanHaveNoOtherType) {
  const JsonPlace place = kRoot.Member("x");
  EXPECT_EQ(*ToText(place, "a"), "a");
  EXPECT_EQ(Refusal(ToText(place, 1)), "\"x\" must be a string");
  EXPECT_TRUE(*ToBool(place, true));
  EXPECT_EQ(Refusal(ToBool(place, 1)), "\"x\" must be true or false");
  EXPECT_EQ(ErrorParam(ToBool(place, "true").status()), "x");
}

TEST(JsonValues, AnIntegerHasTheRangeOfItsType) {
  const JsonPlace place = kRoot.Member("x");
  EXPECT_EQ(*ToInteger<int32_t>(place, -2147483648LL), INT32_MIN);
  EXPECT_EQ(*ToInteger<int32_t>(place, 2147483647), INT32_MAX);
  EXPECT_EQ(*ToInteger<uint64_t>(place, UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(Refusal(ToInteger<int32_t>(place, 2147483648LL)),
            "\"x\" is 2147483648; [-2147483648, 2147483647] is allowed");
  EXPECT_THAT(Refusal(ToInteger<int32_t>(place, UINT64_MAX)), HasSubstr("is allowed"));
  EXPECT_THAT(Refusal(ToInteger<int32_t>(place, -2147483649LL)), HasSubstr("is allowed"));
  EXPECT_THAT(Refusal(ToInteger<uint64_t>(place, -1)),
              HasSubstr("is -1; [0, 18446744073709551615]"));
}

TEST(JsonValues, TheFaultOfAnIntegerNamesTheRangeOfItsField) {
  const JsonPlace place = kRoot.Member("x");
  EXPECT_EQ(Refusal(ToInteger<int32_t>(place, 3000000000LL, 1, 16)),
            "\"x\" is 3000000000; [1, 16] is allowed");
  EXPECT_EQ(*ToInteger<int32_t>(place, 17, 1, 16), 17);  // left to the check of the request
}

TEST(JsonValues, AnIntegerMayBeWrittenWithAFractionOfZero) {
  const JsonPlace place = kRoot.Member("x");
  EXPECT_EQ(*ToInteger<int32_t>(place, 16.0), 16);
  EXPECT_EQ(*ToInteger<int32_t>(place, -16.0), -16);
  EXPECT_EQ(*ToInteger<int64_t>(place, 9007199254740991.0), (int64_t{1} << 53) - 1);
  EXPECT_EQ(Refusal(ToInteger<int32_t>(place, 3e9, 1, 16)),
            "\"x\" is 3000000000.0; [1, 16] is allowed");
  EXPECT_EQ(Refusal(ToInteger<int64_t>(place, 16.5)), "\"x\" must be a whole number");
}

// 2^53 + 1 has the same double.
TEST(JsonValues, AnIntegerWithAPointOrExponentIsBelow2To53) {
  const JsonPlace place = kRoot.Member("x");
  for (const double number : {9007199254740992.0, 1e20, 1e300}) {
    EXPECT_THAT(Refusal(ToInteger<int64_t>(place, number)), HasSubstr("] is allowed"));
    EXPECT_THAT(Refusal(ToInteger<uint64_t>(place, number)), HasSubstr("] is allowed"));
    EXPECT_THAT(Refusal(ToInteger<int64_t>(place, -number)), HasSubstr("] is allowed"));
  }
  const Json beyond_64_bits = Json::parse("99999999999999999999");
  EXPECT_THAT(Refusal(ToInteger<int32_t>(place, beyond_64_bits, 1, 16)),
              HasSubstr("e+20; [1, 16] is allowed"));
}

TEST(JsonValues, TokenIdsAndPartsNameTheWrongElement) {
  const JsonPlace place = kRoot.Member("x");
  EXPECT_EQ(*ToTokenIds(place, {1, 2}), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(Refusal(ToTokenIds(place, {1, "a"})), "\"x[1]\" must be a whole number");
  EXPECT_EQ(Refusal(ToTokenIds(place, {-3000000000})),
            "\"x[0]\" is -3000000000; [0, 2147483647] is allowed");
  EXPECT_EQ(Refusal(ToTokenIds(place, "a")), "\"x\" must be an array of token ids");
  const Json many(static_cast<size_t>(kMaxPromptTokenIds) + 1, 0);
  EXPECT_EQ(Refusal(ToTokenIds(place, many)), "\"x\" has 1048577 token ids; at most 1048576");
  EXPECT_EQ(*ToPromptPart(place, "a"), PromptPart("a"));
  EXPECT_EQ(*ToPromptPart(place, {7}), PromptPart(std::vector<TokenId>{7}));
  EXPECT_EQ(ToChunks(place, {"a", {1}})->size(), 2u);
  EXPECT_EQ(Refusal(ToChunks(place, {"a", 1})),
            "\"x[1]\" must be a string or an array of token ids");
}

}  // namespace
}  // namespace baton
