// Commands of a command line, and what it shows: help, description, version and suggestions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/exit_code.h"
#include "common/settings.h"
#include "tests/cli/full_standard_output.h"
#include "tests/common/command_line_runs.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST(CommandLine, AHelpThatCannotBeWrittenIsAFailure) {
  CommandLine line("A test.");
  std::optional<int> ended;
  {
    const FullStandardOutput full;
    ended = Parse(line, {"--help"});
  }
  EXPECT_EQ(ended, kExitFailed);
}

TEST(CommandLine, HelpShowsGroupsDefaultsWhereAskedForAndExitCodes) {
  int32_t shown = 4711;
  uint64_t bits = 1234;
  int32_t hidden = 815;
  CommandLine line("What it does.", "its-name");
  line.Add("--shown", &shown, "First.").Group("Numbers").ShowDefault();
  line.Add("--bits", &bits, "Second.").ShowDefault();
  line.Add("--hidden", &hidden, "Third.");
  EXPECT_THAT(Help(line),
              AllOf(HasSubstr("What it does."), HasSubstr("its-name"), HasSubstr("Numbers:"),
                    HasSubstr("First. Default: 4711.\n"), HasSubstr("Second. Default: 1234."),
                    HasSubstr("Third."), Not(HasSubstr("815")), HasSubstr(kExitCodeHelp)));
}

TEST(CommandLine, OnlyTheNamedCommandRuns) {
  Arguments ran;
  int32_t value = 0;
  CommandLine line("A test.");
  CommandLine& outer = line.AddCommand("outer", "Has commands");
  CommandLine& inner = outer.AddCommand("inner", "Runs");
  inner.Add("--value", &value, "");
  inner.OnRun([&] {
    ran.push_back("inner");
    return value;
  });
  line.AddCommand("other", "Runs too").OnRun([&] {
    ran.push_back("other");
    return 0;
  });
  EXPECT_EQ(RunLine(line, {"outer", "inner", "--value", "7"}), 7);
  EXPECT_EQ(RunLine(line, {"other"}), 0);
  EXPECT_THAT(ran, ElementsAre("inner", "other"));
  EXPECT_EQ(Refusal(line, {}), "name a command: outer, other (see program --help)\n");
  EXPECT_EQ(Refusal(line, {"outer"}), "name a command: inner (see program outer --help)\n");
  EXPECT_THAT(Refusal(line, {"nothing"}), Not(HasSubstr("inner")));
  EXPECT_THAT(Refusal(line, {"other", "--value", "7"}), HasSubstr("--value"));
  EXPECT_THAT(ran, ElementsAre("inner", "other"));
}

TEST(CommandLine, DescribesItsCommandsAndOptions) {
  int32_t number = 7;
  bool flag = false;
  std::vector<std::string> list;
  std::string mode;
  std::string place;
  bool setting = true;
  SettingList settings;
  settings.Add("fast", &setting, "Go fast");
  CommandLine line("A test.", "program");
  CommandLine& command = line.AddCommand("it", "Does it").AddCommand("all", "Does it all");
  command.Add("--number", &number, "A number").Range(1, 9).ShowDefault().Group("Numbers");
  command.AddFlag("--flag", &flag, "A flag");
  command.Add("--list", &list, "A list");
  command.Add("--mode", &mode, "A mode").OneOf({"a", "b"});
  command.Add("PLACE", &place, "A place").Required();
  command.AddSettings(settings, "Engine");
  const CommandDescription program = line.Describe();
  ASSERT_EQ(program.commands.size(), 1);
  ASSERT_EQ(program.commands[0].commands.size(), 1);
  const CommandDescription& all = program.commands[0].commands[0];
  EXPECT_THAT(all.path, ElementsAre("program", "it", "all"));
  EXPECT_EQ(all.description, "Does it all");
  const auto find = [&all](const std::string& name) {
    for (const OptionDescription& option : all.options) {
      if (option.positional == name) return option;
      for (const std::string& known : option.names) {
        if (known == name) return option;
      }
    }
    ADD_FAILURE() << "no " << name;
    return OptionDescription();
  };
  EXPECT_EQ(find("--number").value, "INT");
  EXPECT_EQ(find("--number").help, "A number. Range: 1 to 9. Default: 7.");
  EXPECT_EQ(find("--number").group, "Numbers");
  EXPECT_EQ(find("--flag").value, "");
  EXPECT_TRUE(find("--list").repeatable);
  EXPECT_FALSE(find("--number").repeatable);
  EXPECT_THAT(find("--mode").choices, ElementsAre("a", "b"));
  EXPECT_EQ(find("PLACE").help, "A place. Required.");
  EXPECT_EQ(find("--list").help, "A list. Repeatable.");
  EXPECT_TRUE(find("PLACE").names.empty());
  EXPECT_THAT(find("--fast").names, UnorderedElementsAre("--fast", "--no-fast"));
  EXPECT_THAT(find("--help").names, UnorderedElementsAre("-h", "--help"));
}

TEST(CommandLine, AMistypedNameIsAnsweredWithTheNearestOne) {
  double temperature = 1;
  CommandLine line("A test.");
  CommandLine& generate = line.AddCommand("generate", "Answers");
  generate.Add("--temperature", &temperature, "").Required();
  line.AddCommand("status", "Shows");
  EXPECT_EQ(Refusal(line, {"generate", "--tempreature=2"}),
            "there is no option --tempreature; did you mean --temperature? (see program generate "
            "--help)\n");
  EXPECT_EQ(Refusal(line, {"generate", "--tempreature", "2"}),
            "there is no option --tempreature; did you mean --temperature? (see program generate "
            "--help)\n");
  EXPECT_EQ(Refusal(line, {"generat", "--temperature=2"}),
            "there is no command generat; did you mean generate? (see program --help)\n");
  EXPECT_EQ(Refusal(line, {"nothing"}), "there is no command nothing (see program --help)\n");
  EXPECT_EQ(Refusal(line, {"status", "now"}),
            "the argument \"now\" was not expected (see program status --help)\n");
}

TEST(CommandLine, TheVersionIsPrintedAndNothingRuns) {
  CommandLine line("A test.");
  line.AddCommand("run", "Runs").OnRun([]() -> int { throw "it ran"; });
  EXPECT_THAT(Help(line, {"--version"}),
              ::testing::ContainsRegex("^baton [0-9]+\\.[0-9]+\\.[0-9]+\n$"));
  EXPECT_THAT(Help(line, {"run", "--version"}), HasSubstr("baton "));
}

TEST(CommandLine, TheDefaultOfAListIsShownAsItIsTyped) {
  CommandLine line("A test.");
  std::vector<std::string> routers = {"a:1"};
  line.Add("--router", &routers, "Routers").TakesOne().ShowDefault();
  EXPECT_THAT(Help(line), HasSubstr("Routers. Default: a:1. Repeatable."));
  EXPECT_EQ(Parse(line, {}), std::nullopt);
  EXPECT_THAT(routers, ElementsAre("a:1"));
  EXPECT_EQ(Parse(line, {"--router=b:2", "--router", "c:3"}), std::nullopt);
  EXPECT_THAT(routers, ElementsAre("b:2", "c:3"));
}

TEST(CommandLine, TheTextOfACommandsHelpFollowsOnlyItsOptions) {
  CommandLine line("A test.", "program");
  CommandLine& one = line.AddCommand("one", "One");
  line.AddCommand("two", "Two").OnRun([] { return 0; });
  one.OnRun([] { return 0; });
  one.AddHelpText("Lines have a form.");
  const std::string help = Help(line, {"one", "--help"});
  EXPECT_LT(help.find("--help"), help.find("Lines have a form."));
  EXPECT_LT(help.find("Lines have a form."), help.find("Exit codes:"));
  EXPECT_THAT(Help(line, {"two", "--help"}), Not(HasSubstr("Lines have a form.")));
}

TEST(CommandLine, HelpOfACommandAndOfAllCommandsRunsNothing) {
  CommandLine line("A test.");
  line.AddCommand("one", "The first").OnRun([]() -> int { throw "it ran"; });
  line.AddCommand("two", "The second").OnRun([]() -> int { throw "it ran"; });
  EXPECT_THAT(Help(line, {"--help-all"}), AllOf(HasSubstr("The first"), HasSubstr("The second")));
  EXPECT_THAT(
      Help(line, {"one", "--help"}),
      AllOf(HasSubstr("The first"), Not(HasSubstr("The second")), HasSubstr(kExitCodeHelp)));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunLine(line, {"one", "--help"}), kExitSuccess);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("The first"));
}

}  // namespace
}  // namespace baton
