#include "text/jinja/evaluator.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/jinja/parser.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<JinjaString> Render(const std::string& source, const JinjaLimits& limits = {}) {
  const absl::StatusOr<JinjaBlock> body = ParseJinja(source, limits);
  if (!body.ok()) return body.status();
  JinjaInput input;
  input.variables["user"] = JinjaValue::String(JinjaString(" <|a|>,B ", false));
  return JinjaEvaluator(*body, limits, std::move(input)).Render();
}

void ExpectLimit(const std::string& source, const std::string& message,
                 const JinjaLimits& limits = {}) {
  const absl::Status status = Render(source, limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << source << " " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << source;
}

TEST(JinjaEvaluator, BoundsLoopsStringsListsAndNesting) {
  ExpectLimit("\n{% set r = range(9999) %}{% for a in r %}{{ 9999 in r }}{% endfor %}",
              "steps; the limit is 4000000");
  ExpectLimit("{{ 'abcdefgh' * 99999999999 }}", "exceeds the limit");
  ExpectLimit("{{ range(100001) }}", "the limit");
  ExpectLimit("{{ [0] * 100001 }}", "limit is 100000");
  ExpectLimit(
      "{% set n = namespace(s='abcdefgh') %}{% for i in range(99) %}"
      "{% set n.s = n.s ~ n.s %}{% endfor %}",
      "the limit");
  ExpectLimit(
      "{% set n = namespace(l=[]) %}{% for i in range(99) %}{% set n.l = [n.l] %}{% endfor %}",
      "nested 33 deep; the limit is 32");
  ExpectLimit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "limit is 250");
  JinjaLimits limits;
  limits.max_output_bytes = 10;
  ExpectLimit("12345678901", "limit of 10 bytes", limits);
}

TEST(JinjaEvaluator, BoundsWorkOnValuesThatShareStructure) {
  // Each list contains the previous list twice, so 30 objects have 2^30 leaves.
  const std::string doubling =
      "{% set n = namespace(l=[1]) %}{% for i in range(30) %}{% set n.l = [n.l, n.l] %}{% endfor "
      "%}";
  ExpectLimit(doubling + "{{ n.l }}", "limit");
  ExpectLimit(doubling + "{{ n.l | tojson }}", "limit");
}

TEST(JinjaEvaluator, ANamespaceMayHoldItself) {
  const auto text = Render("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n] %}ok");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->bytes(), "ok");
}

TEST(JinjaEvaluator, OriginsFollowTheBytesThroughEveryOperation) {
  for (const std::string expression : {"user",
                                       "user | trim",
                                       "user[1:-1]",
                                       "user.strip()",
                                       "user.split(',')[0]",
                                       "user | upper",
                                       "user | replace('B', '')",
                                       "user.replace(' ', '')",
                                       "user | tojson",
                                       "[user] | string",
                                       "user | list | join",
                                       "(user ~ '')",
                                       "user * 2",
                                       "user | reverse",
                                       "user | title",
                                       "{'k': user}['k']",
                                       "{user: 1} | list | first",
                                       "user | default('x')",
                                       "[user] | map('lower') | first",
                                       "user.splitlines() | join",
                                       "(user, 1)[0]"}) {
    const auto text = Render("{{ '<|t|>' ~ (" + expression + ") ~ '<|t|>' }}");
    ASSERT_TRUE(text.ok()) << expression << text.status();
    const auto segments = text->Segments();
    ASSERT_EQ(segments.size(), 3u) << expression;
    EXPECT_EQ(segments.front(), (TextSegment{"<|t|>", true})) << expression;
    EXPECT_FALSE(segments[1].trusted) << expression;
    EXPECT_EQ(segments.back(), (TextSegment{"<|t|>", true})) << expression;
  }
}

TEST(JinjaEvaluator, NumbersThatAUserChoseStayUntrusted) {
  const auto text = Render("{{ 1 }}{{ user | length }}{{ (user | int(5)) + 1 }}{{ 2 }}");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(text->Segments().front(), (TextSegment{"1", true}));
  EXPECT_EQ(text->Segments()[1].trusted, false);
}

TEST(JinjaEvaluator, ReplacementsOfTheTemplateAreTrustedInsideUserText) {
  const auto text = Render("{{ user | replace(',', '<sep>') }}");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(text->Segments(), ElementsAre(TextSegment{" <|a|>", false},
                                            TextSegment{"<sep>", true}, TextSegment{"B ", false}));
}

TEST(JinjaEvaluator, NamesTheInnermostLine) {
  const absl::Status status = Render("{% if true %}\n{{ [1,\n missing.x] }}{% endif %}").status();
  EXPECT_EQ(status.message(), "line 3: 'missing' is undefined");
}

}  // namespace
}  // namespace baton
