#include "bench/figure_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string Printed(const std::function<void()>& run) {
  ::testing::internal::CaptureStdout();
  run();
  std::fflush(stdout);
  return ::testing::internal::GetCapturedStdout();
}

TEST(FigureList, AFigureHasItsLimitAndItsRatio) {
  FigureList list;
  list.Add("copy", 6, "GB/s", 12);
  list.Add("alone", 3, "us");
  list.Add("wrong_answers", 0, "answers", 0)["checked"] = 7;
  const nlohmann::json line = list.ToJson("test", 9);
  EXPECT_EQ(line["bench"], "test");
  EXPECT_EQ(line["seed"], 9);
  const nlohmann::json& figures = line["figures"];
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_EQ(
      figures[0],
      nlohmann::json(
          {{"name", "copy"}, {"value", 6.0}, {"unit", "GB/s"}, {"limit", 12.0}, {"ratio", 0.5}}));
  EXPECT_TRUE(figures[1]["limit"].is_null());
  EXPECT_TRUE(figures[1]["ratio"].is_null());
  EXPECT_EQ(figures[2]["limit"], 0);
  EXPECT_TRUE(figures[2]["ratio"].is_null());
  EXPECT_EQ(figures[2]["checked"], 7);
}

TEST(FigureList, AnAbsentFigureNamesTheReasonInTheTableAndInTheJsonLine) {
  FigureList list;
  const std::string table =
      Printed([&] { list.AddAbsent("tcp_to_iperf3", "ratio", "iperf3 is not installed"); });
  EXPECT_THAT(table, HasSubstr("tcp_to_iperf3"));
  EXPECT_THAT(table, HasSubstr("not measured: iperf3 is not installed\n"));
  const nlohmann::json figure = list.ToJson("test", 0)["figures"][0];
  EXPECT_EQ(figure["name"], "tcp_to_iperf3");
  EXPECT_EQ(figure["unit"], "ratio");
  EXPECT_TRUE(figure["value"].is_null());
  EXPECT_EQ(figure["absent"], "not measured: iperf3 is not installed");
}

TEST(FigureList, ConditionsArePrintedAndAreInTheJsonLine) {
  FigureList list;
  const std::string said = "Both ends share one process.";
  EXPECT_EQ(Printed([&] { list.AddCondition(said); }), said + "\n");
  const std::string line = Printed([&] { list.Print("test", 1); });
  EXPECT_EQ(nlohmann::json::parse(line)["conditions"], nlohmann::json::array({said}));
}

}  // namespace
}  // namespace baton
