#include "loadtest/role_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/loadtest/simulated_fleets.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

SimulationOptions Swing(double duration_s) {
  SimulationOptions options = SwingingSimulation(3, 4, duration_s);
  options.fleet.prefill_workers = 1;
  options.fleet.roles.period_ms = 1000;
  options.workload.output_tokens = 2048;
  options.workload.swing_period_s = 60;
  options.objectives.ttft_ms = 2000;
  options.objectives.itl_ms = 60;
  return options;
}

TEST(RoleStudy, CountsTheFlipsOfAWorkerBetweenTwoSwings) {
  EXPECT_EQ(FlipsPerWorkerAndSwing({}, 100), 0);
  EXPECT_EQ(
      FlipsPerWorkerAndSwing(
          {{.at_us = 10, .worker = 1}, {.at_us = 20, .worker = 2}, {.at_us = 110, .worker = 1}},
          100),
      1);
  EXPECT_EQ(FlipsPerWorkerAndSwing({{.at_us = 110, .worker = 1}, {.at_us = 199, .worker = 1}}, 100),
            2);
}

TEST(RoleStudy, ComparesThePlannerWithFixedSplitsAndAnOracle) {
  std::vector<std::string> lines;
  const auto study = StudyRoles(Swing(60), ComputedProfile(),
                                [&](const std::string& line) { lines.push_back(line); });
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_EQ(lines.size(), 1 + 3 + 1 + 2 * (3 + 1) + 1u);
  EXPECT_GT(study->planner_good, 0);
  EXPECT_GT(study->best_fixed_good, 0);
  EXPECT_GT(study->oracle_good, 0);
  EXPECT_EQ(study->oracle_prefill_workers, (std::array<int32_t, 2>{2, 0}));
  std::vector<std::string> names;
  for (const MoreFigure& figure : FiguresOf(*study)) {
    EXPECT_TRUE(figure.value.has_value()) << figure.name;
    names.push_back(figure.name);
  }
  EXPECT_EQ(names[0], "planner_to_best_fixed");
  EXPECT_EQ(names[1], "planner_to_oracle");
  RoleStudy known;
  known.planner_good = 9;
  EXPECT_FALSE(FiguresOf(known)[0].value.has_value());
  known.best_fixed_good = 6;
  known.oracle_good = 10;
  EXPECT_DOUBLE_EQ(*FiguresOf(known)[0].value, 1.5);
  EXPECT_DOUBLE_EQ(*FiguresOf(known)[1].value, 0.9);
}

TEST(RoleStudy, OptionsThatDoNotFitAreNamed) {
  const auto fault = [](const SimulationOptions& options) {
    const auto study = StudyRoles(options, ComputedProfile(), [](const std::string&) {});
    EXPECT_EQ(study.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(study.status().message());
  };
  SimulationOptions options = Swing(10);
  options.workload.kind = WorkloadKind::kSynthetic;
  EXPECT_THAT(fault(options), HasSubstr("workload swing"));
  options = Swing(10);
  options.objectives = {};
  EXPECT_THAT(fault(options), HasSubstr("objectives"));
  options = Swing(10);
  options.fleet.workers = 1;
  EXPECT_THAT(fault(options), HasSubstr("has 1 workers"));
  options = Swing(10);
  options.fleet.roles.mode = RolePlannerMode::kAdvise;
  EXPECT_THAT(fault(options), HasSubstr("changes roles"));
  options = Swing(10);
  options.fleet.prefill_workers = 0;
  EXPECT_THAT(fault(options), HasSubstr("only prefill"));
}

}  // namespace
}  // namespace baton
