#include "text/jinja/limits.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"

namespace baton {
namespace {

constexpr JinjaLimits kSmall = {.max_steps = 100'000, .max_work_bytes = 1 << 20};

absl::StatusOr<JinjaString> Render(const std::string& source, const JinjaLimits& limits) {
  const absl::StatusOr<JinjaBlock> body = ParseJinja(source, limits);
  if (!body.ok()) return body.status();
  return JinjaEvaluator(*body, limits, {}).Render();
}

std::string Times(int times, const std::string& body) {
  return "{% for i in range(" + std::to_string(times) + ") %}" + body + "{% endfor %}";
}

// Returns a list of numbered names or items: `before` 0 `between` 1 … `after`.
std::string Listed(int count, const std::string& before, const std::string& after) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += (i > 0 ? "," : "") + before + std::to_string(i) + after;
  }
  return text;
}

struct HostileTemplate {
  const char* name;
  std::string source;
};

class HostileTemplates : public testing::TestWithParam<HostileTemplate> {};

// Each template does much work in few expressions. The limits must count this work.
TEST_P(HostileTemplates, AreRefusedAtALimit) {
  const absl::Status status = Render(GetParam().source, kSmall).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

const std::string kLong(50'000, 'a');
// 60 keys of at least 400 bytes with a common start, all of different length.
std::string SetDict() {
  std::string entries;
  for (size_t i = 0; i < 60; ++i) entries += "'" + std::string(400 + i, 'a') + "': 1,";
  return "{% set d = {" + entries + "} %}";
}

const std::string kSetDict = SetDict();
const std::string kSetLong = "{% set k = 'a' * 50000 %}";

INSTANTIATE_TEST_SUITE_P(
    All, HostileTemplates,
    testing::ValuesIn(std::vector<HostileTemplate>{
        {"LongNames", Times(100, "{{ " + kLong + " }}")},
        {"ReasonsOfUndefinedNames", Times(5000, "{{ unknown }}")},
        {"ReasonsOfUndefinedItems", kSetLong + "{% set e = {} %}" + Times(400, "{{ e[k] }}")},
        {"ReasonsOfUndefinedAttributes", Times(100, "{{ {}." + kLong + " }}")},
        {"ReasonsOfInlineIfs", Times(5000, "{{ 1 if false }}")},
        {"ReasonsOfLoopNeighbours", Times(5000, "{% set x = loop.previtem %}{% set y = loop.x %}")},
        {"NamesOfLoopVariables", "{% for " + kLong + " in range(100) %}{% endfor %}"},
        {"NamesOfSetVariables", Times(100, "{% set " + kLong + " = 1 %}")},
        {"NamesOfNamedArguments", Times(100, "{% set x = dict(" + kLong + "=1) %}")},
        {"FunctionValues", Times(10'000, "{% set x = range %}")},
        {"Loops", "{% set l = [1] %}" + Times(5'000, "{% for j in l %}{% endfor %}")},
        {"NamedArgumentsTimesParameters", "{% macro m(" + Listed(400, "a", "") +
                                              ") %}{% endmacro %}{{ m(" + Listed(400, "a", "=1") +
                                              ") }}"},
        {"LongNamedArgumentsTimesLongParameters",
         "{% macro m(" + Listed(40, std::string(1000, 'a'), "") + ") %}{% endmacro %}{{ m(" +
             Listed(40, std::string(1000, 'a'), "=1") + ") }}"},
        {"ParametersOfAMacro",
         "{% macro m(" + Listed(2000, "a", "") + ") %}{% endmacro %}" + Times(10, "{{ m() }}")},
        {"ParametersThatHaveValues",
         "{% macro m(" + Listed(1000, "a", "=1") + ") %}{% endmacro %}" + Times(40, "{{ m() }}")},
        {"DictSort", kSetDict + Times(12, "{{ d | dictsort | length }}")},
        {"SortedKeys", kSetDict + Times(8, "{% set x = d | tojson(sort_keys=true) %}")},
        {"JsonSeparators", kSetLong + Times(10, "{{ 1 | tojson(separators=(k, k)) }}")},
        {"PrefixesToTry", "{% set t = ('b',) * 10000 %}" + Times(12, "{{ 'a'.startswith(t) }}")},
        {"AttributesOfANamespace", "{% set n = namespace(" + Listed(500, "a", "=1") + ") %}"},
        {"LongAttributesOfANamespace",
         "{% set k = 'a' * 1000 %}{% set n = namespace({" + Listed(50, "k ~ 'a", "': 1") + "}) %}"},
        {"ArgumentsOfMappedFilters",
         "{{ ([[]] * 1000) | map('select', 'eq', " + Listed(200, "", "") + ") | list | length }}"},
        {"DottedPathsOfMappedItems",
         kSetLong + "{{ ([{}] * 100) | map(attribute=k, default=1) | list | length }}"},
    }),
    [](const auto& instance) { return std::string(instance.param.name); });

// An ordinary template stays far below the limits that stop hostile templates.
TEST(JinjaMeter, AnOrdinaryTemplateStaysWithinTheLimits) {
  const std::string source =
      "{% macro show(name, text, end='\\n') %}<{{ name }}>{{ text | trim }}{{ end }}{% endmacro "
      "%}" +
      Times(100,
            "{% if loop.first %}start{% endif %}{{ show('user', 'x' ~ i) }}"
            "{% set n = namespace(a=1, b=i) %}{% set n.a = n.b %}"
            "{{ {'k': i, 'l': 'text'} | tojson }}");
  const auto text = Render(source, kSmall);
  EXPECT_TRUE(text.ok()) << text.status();
}

TEST(JinjaMeter, CountsASortByItsComparisons) {
  const JinjaLimits limits{.max_steps = 80, .max_work_bytes = 640};
  EXPECT_TRUE(JinjaMeter(limits).AddSort(16, 8).ok());  // 16 * 5 comparisons of 8 bytes
  EXPECT_FALSE(JinjaMeter(limits).AddSort(17, 8).ok());
  EXPECT_FALSE(JinjaMeter(limits).AddSort(16, 9).ok());
}

// An error message shows only the start of a long piece, for example of raise_exception's text.
TEST(JinjaMeter, BoundsMessages) {
  for (const std::string& source :
       {kSetLong + "{{ raise_exception(k) }}", kSetLong + "{{ {}[k].x }}",
        kSetLong + "{{ [1] | map(k) | list }}", "{{ " + kLong + ".x }}"}) {
    const absl::Status status = Render(source, JinjaLimits{}).status();
    EXPECT_FALSE(status.ok());
    EXPECT_LT(status.message().size(), 2000u);
    EXPECT_NE(status.message().find("aaaa"), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace baton
