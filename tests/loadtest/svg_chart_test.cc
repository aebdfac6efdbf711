#include "loadtest/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SvgChart, TextIsEscaped) {
  EXPECT_EQ(HtmlEscaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  const std::string chart =
      LineChart({.title = "<script>", .x_label = "x", .y_label = "y", .x_marks = {{1.5, "</svg>"}}},
                {{.name = "<img>", .points = {{1, 1}, {2, 2}}}});
  for (const char* hostile : {"<script>", "<img>", "\"</svg>"}) {
    EXPECT_THAT(chart, Not(HasSubstr(hostile)));
  }
  EXPECT_THAT(chart, HasSubstr("&lt;img&gt;"));
  EXPECT_THAT(StackedBars("t", "<ms>", {{.name = "<b>", .parts = {{.name = "<i>", .value = 1}}}}),
              Not(::testing::AnyOf(HasSubstr("<b>"), HasSubstr("<i>"), HasSubstr("<ms>"))));
}

TEST(SvgChart, NumbersAreShort) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(0.12345), "0.123");
  EXPECT_EQ(ShortNumber(12.345), "12.35");
  EXPECT_EQ(ShortNumber(123456), "123456");
}

TEST(SvgChart, EveryInputGivesFinitePoints) {
  const ChartSeries one = {.name = "one", .points = {{3, 4}}};
  const ChartSeries equal = {.name = "equal", .points = {{2, 5}, {2, 5}}};
  const ChartSeries zero = {.name = "zero", .points = {{0, 0}, {1, 0}}};
  for (const bool log_x : {false, true}) {
    for (const ChartSeries& series :
         {one, equal, zero, ChartSeries{.name = "none", .points = {}}}) {
      const std::string chart = LineChart(
          {.title = "t", .x_label = "x", .y_label = "y", .log_x = log_x, .x_marks = {}}, {series});
      EXPECT_THAT(chart, Not(HasSubstr("nan"))) << series.name;
      EXPECT_THAT(chart, Not(HasSubstr("inf"))) << series.name;
      EXPECT_TRUE(chart.ends_with("</figure>\n"));
    }
  }
  EXPECT_THAT(LineChart({.title = "t", .x_label = "x", .y_label = "y", .x_marks = {}}, {}),
              HasSubstr("no values"));
  EXPECT_THAT(StackedBars("t", "ms", {{.name = "a", .parts = {}}}), Not(HasSubstr("nan")));
}

TEST(SvgChart, ManyPointsAreThinnedAndTheLastStays) {
  ChartSeries many = {.name = "many", .points = {}, .steps = true};
  for (int i = 1; i <= 100'000; ++i) many.points.emplace_back(i, i);
  const std::string chart = LineChart(
      {.title = "t", .x_label = "x", .y_label = "y", .log_x = true, .x_marks = {}}, {many});
  EXPECT_LT(chart.size(), 60'000u);
  EXPECT_THAT(chart, HasSubstr("H624.0V12.0"));  // the upper right corner
}

TEST(SvgChart, PartsOfEqualNameHaveEqualColours) {
  const std::string chart =
      StackedBars("t", "ms",
                  {{.name = "a", .parts = {{.name = "x", .value = 1}, {.name = "y", .value = 2}}},
                   {.name = "b", .parts = {{.name = "y", .value = 3}}}});
  size_t with_second_colour = 0;
  for (size_t at = chart.find("class=\"b1\"><title>y"); at != std::string::npos;
       at = chart.find("class=\"b1\"><title>y", at + 1)) {
    ++with_second_colour;
  }
  EXPECT_EQ(with_second_colour, 2u);
}

}  // namespace
}  // namespace baton
