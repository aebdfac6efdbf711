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
  EXPECT_THAT(Refusal(ToInteger<int32_t>(place, 2147483648LL)), HasSubstr("is 2147483648; "));
  EXPECT_THAT(Refusal(ToInteger<int32_t>(place, UINT64_MAX)), HasSubstr("is allowed"));
  EXPECT_THAT(Refusal(ToInteger<int32_t>(place, -2147483649LL)), HasSubstr("is allowed"));
  EXPECT_THAT(Refusal(ToInteger<uint64_t>(place, -1)),
              HasSubstr("is -1; 0 to 18446744073709551615"));
  EXPECT_THAT(Refusal(ToInteger<int32_t>(place, 1.0)), HasSubstr("must be a whole number"));
}

TEST(JsonValues, TokenIdsAndPartsNameTheWrongElement) {
  const JsonPlace place = kRoot.Member("x");
  EXPECT_EQ(*ToTokenIds(place, {1, 2}), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(Refusal(ToTokenIds(place, {1, "a"})), "\"x[1]\" must be a whole number");
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
