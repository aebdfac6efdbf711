#include "text/jinja/filters.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(JinjaFilters, AreKnownByName) {
  EXPECT_TRUE(HasJinjaFilter("selectattr"));
  EXPECT_FALSE(HasJinjaFilter("wordwrap"));
  EXPECT_FALSE(HasJinjaFilter(""));
}

TEST(JinjaFilters, RefuseWrongArguments) {
  JinjaMeter meter({});
  const JinjaValue text = JinjaValue::String(JinjaString("a", true));
  const JinjaValue one = JinjaValue::Int(1);
  const struct {
    std::string_view name;
    JinjaArguments arguments;
  } kCases[] = {{"trim", {{one}, {}}},
                {"length", {{one}, {}}},
                {"replace", {{text}, {}}},
                {"selectattr", {}},
                {"map", {}},
                {"map", {{text}, {}}},
                {"select", {{text}, {}}},
                {"items", {}},
                {"dictsort", {}},
                {"tojson", {{}, {{"indent", text}}}}};
  for (const auto& c : kCases) {
    EXPECT_FALSE(ApplyJinjaFilter(c.name, text, c.arguments, meter).ok()) << c.name;
  }
}

TEST(JinjaFilters, ANumberReadFromUserTextIsUntrusted) {
  JinjaMeter meter({});
  const auto number =
      ApplyJinjaFilter("int", JinjaValue::String(JinjaString(" 7 ", false)), {}, meter);
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(number->AsInt(), 7);
  EXPECT_FALSE(number->trusted_number());
}

TEST(JinjaFilters, ReadingATextIsChargedToTheLimit) {
  const JinjaValue text = JinjaValue::String(JinjaString(std::string(100, '1'), true));
  for (const std::string_view name : {"int", "float", "length", "trim"}) {
    JinjaMeter meter({.max_work_bytes = 99});
    EXPECT_EQ(ApplyJinjaFilter(name, text, {}, meter).status().code(),
              absl::StatusCode::kResourceExhausted)
        << name;
  }
}

}  // namespace
}  // namespace baton
