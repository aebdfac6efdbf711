#include "text/jinja/parser.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(JinjaParser, ErrorsNameTheCauseAndItsLine) {
  const struct {
    std::string source;
    std::string message;
  } kCases[] = {
      {"\n{% if x %}", "line 2: 'if' has no endif"},
      {"\n{% for x in y %}{% else %}", "line 2: 'for' has no endfor"},
      {"\n{% endif %}", "line 2: 'endif' has no opening tag"},
      {"\n{% break %}", "line 2: 'break' outside a loop"},
      {"\n{% set true = 1 %}", "line 2: cannot assign to a constant"},
      {"\n{% for x of y %}", "line 2: unexpected 'of'"},
      {"\n{% if x y %}{% endif %}", "line 2: unexpected 'y'"},
      {"\n{% macro m(a=1, b) %}{% endmacro %}", "line 2: parameter 'b' without a default"},
      {"\xff", "not valid UTF-8 at byte 0"}};
  for (const auto& c : kCases) {
    const absl::Status status = ParseJinja(c.source, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.source << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(JinjaParser, RefusesUnsupportedConstructsByName) {
  const struct {
    std::string source;
    std::string name;
  } kCases[] = {{"{% for x in y recursive %}{% endfor %}", "'recursive'"},
                {"{% call x() %}{% endcall %}", "tag 'call'"},
                {"{% set x | upper %}{% endset %}", "filter on a set block"},
                {"{% for x in y %}{% macro m() %}{% endmacro %}{% endfor %}", "macro inside"},
                {"{% macro m() %}{{ caller() }}{% endmacro %}", "'caller'"}};
  for (const auto& c : kCases) {
    const absl::Status status = ParseJinja(c.source, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << c.source << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.name));
  }
}

TEST(JinjaParser, BoundsSizeAndNesting) {
  JinjaLimits limits;
  limits.max_template_bytes = 3;
  EXPECT_EQ(ParseJinja("abcd", limits).status().code(), absl::StatusCode::kResourceExhausted);
  std::string blocks;
  for (int i = 0; i < 200; ++i) blocks += "{% if x %}";
  EXPECT_EQ(ParseJinja(blocks, {}).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton
