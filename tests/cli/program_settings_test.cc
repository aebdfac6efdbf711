#include "cli/program_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

bool Never() { return false; }

absl::StatusOr<std::string> Ask(const std::string& script,
                                const std::function<bool()>& interrupted = Never) {
  return AskForSettings("the router",
                        {.name = "router",
                         .arguments = {"/bin/sh", "-c", script},
                         .variables = {"BATON_TEST_A=plan", "BATON_TEST_B=plan"}},
                        interrupted);
}

std::string ErrorOf(const absl::StatusOr<std::string>& settings) {
  return settings.status().ToString();
}

TEST(ProgramSettings, AProgramTellsItsSettings) {
  EXPECT_EQ(*Ask("echo \"asked = $0\""), "asked = --check\n");
}

TEST(ProgramSettings, VariablesOfThePlanGiveWayToThoseOfThisProcess) {
  setenv("BATON_TEST_A", "user", 1);
  EXPECT_EQ(*Ask("echo $BATON_TEST_A $BATON_TEST_B"), "user plan\n");
  unsetenv("BATON_TEST_A");
}

TEST(ProgramSettings, ARefusalIsTheUsersErrorAndADeathIsNot) {
  EXPECT_EQ(ErrorOf(Ask("echo --x is wrong >&2; exit 2")),
            "INVALID_ARGUMENT: settings of the router: --x is wrong");
  EXPECT_EQ(ErrorOf(Ask("echo 'warning: of a variable' >&2; echo sh: no such file >&2; exit 2")),
            "INVALID_ARGUMENT: settings of the router: no such file");
  EXPECT_EQ(ErrorOf(Ask("echo sh: no such host >&2; exit 2")),
            "INVALID_ARGUMENT: settings of the router: no such host");
  EXPECT_EQ(ErrorOf(Ask("echo sh: the port is in use >&2; exit 1")),
            "FAILED_PRECONDITION: the router cannot start: the port is in use");
  EXPECT_THAT(ErrorOf(Ask("echo half; kill -9 $$")),
              ::testing::AllOf(HasSubstr("INTERNAL: "), HasSubstr("signal 9: half")));
  EXPECT_THAT(ErrorOf(Ask("exit 127")), HasSubstr("INTERNAL: cannot run /bin/sh: exit code 127"));
}

TEST(ProgramSettings, AnInterruptEndsTheWaitForAProgram) {
  int polls = 0;
  EXPECT_TRUE(absl::IsCancelled(Ask("exec sleep 1000", [&] { return ++polls == 2; }).status()));
}

TEST(ProgramSettings, AValueEndsBeforeItsDefault) {
  const std::string settings =
      "kv-cache-mib = 3\nmodel = /a b (default x).gguf  (default empty)\nkv = 9\nid = \n";
  EXPECT_EQ(SettingValue(settings, "model"), "/a b (default x).gguf");
  EXPECT_EQ(SettingValue(settings, "kv"), "9");
  EXPECT_EQ(SettingValue(settings, "id"), "");
  EXPECT_EQ(SettingValue(settings, "none"), "");
}

}  // namespace
}  // namespace baton
