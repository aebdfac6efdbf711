#include "router/router_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

// No worker's model could have such a long name, so the router would wait for ever.
TEST(RouterOptions, AModelIsNotPinnedByANameLongerThanWorkersMayHave) {
  RouterOptions options;
  SettingList settings;
  RegisterSettings(options, settings);
  const std::string longest(WorkerRegistry::kMaxNameBytes, 'm');
  EXPECT_TRUE(settings.Set("pin-model", longest).ok());
  const absl::Status status = settings.Set("pin-model", longest + "m");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("257 bytes; at most 256"));
  EXPECT_EQ(options.pin_model, longest);
}

TEST(RouterOptions, TheRolePlannerAdvisesUnlessToldOtherwise) {
  RouterOptions options;
  SettingList settings;
  RegisterSettings(options, settings);
  EXPECT_EQ(options.roles.mode, RolePlannerMode::kAdvise);
  EXPECT_TRUE(settings.Set("role-planner", "apply").ok());
  EXPECT_EQ(options.roles.mode, RolePlannerMode::kApply);
  EXPECT_FALSE(settings.Set("role-planner", "often").ok());
  EXPECT_FALSE(settings.Set("role-planner-period-ms", "999").ok());
  EXPECT_TRUE(settings.Set("role-planner-period-ms", "1200000").ok()) << "a lease of an hour";
}

}  // namespace
}  // namespace baton
