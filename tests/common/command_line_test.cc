#include "common/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/exit_code.h"
#include "common/settings.h"
#include "common/str_cat.h"
#include "tests/cli/full_standard_output.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

using Arguments = std::vector<std::string>;

// Returns `program` followed by the arguments, which must outlive the result.
std::vector<const char*> Argv(const Arguments& arguments) {
  std::vector<const char*> argv = {"program"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return argv;
}

std::optional<int> Parse(CommandLine& line, const Arguments& arguments) {
  const std::vector<const char*> argv = Argv(arguments);
  return line.Parse(static_cast<int>(argv.size()), argv.data());
}

int RunLine(CommandLine& line, const Arguments& arguments) {
  const std::vector<const char*> argv = Argv(arguments);
  return line.Run(static_cast<int>(argv.size()), argv.data());
}

// Returns the error for a wrong command line. Checks that the exit code is that of a usage error.
std::string Refusal(CommandLine& line, const Arguments& arguments) {
  ::testing::internal::CaptureStderr();
  const std::optional<int> ended = Parse(line, arguments);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(ended, kExitUsage) << said;
  return said;
}

std::string Help(CommandLine& line, const Arguments& arguments = {"--help"}) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Parse(line, arguments), kExitSuccess);
  return ::testing::internal::GetCapturedStdout();
}

TEST(CommandLine, EveryTypeOfFieldTakesItsValueOrKeepsItsDefault) {
  std::string text = "before";
  int32_t small = -1;
  int64_t large = 0;
  uint64_t bits = 0;
  float narrow = 0;
  double wide = 0;
  bool flag = false;
  bool untouched = false;
  std::optional<std::string> maybe_text;
  std::optional<int32_t> maybe_small;
  std::optional<uint64_t> maybe_bits;
  std::optional<int32_t> absent;
  CommandLine line("A test.");
  line.Add("--text", &text, "");
  line.Add("--small", &small, "");
  line.Add("--large", &large, "");
  line.Add("--bits", &bits, "");
  line.Add("--narrow", &narrow, "");
  line.Add("--wide", &wide, "");
  line.AddFlag("--flag", &flag, "");
  line.AddFlag("--untouched", &untouched, "");
  line.Add("--maybe-text", &maybe_text, "");
  line.Add("--maybe-small", &maybe_small, "");
  line.Add("--maybe-bits", &maybe_bits, "");
  line.Add("--absent", &absent, "");
  EXPECT_EQ(Parse(line, {"--small=-7", "--large", "-5000000000", "--bits=18446744073709551615",
                         "--narrow", "0.5", "--wide=1e300", "--flag", "--maybe-text", "",
                         "--maybe-small", "3", "--maybe-bits=010"}),
            std::nullopt);
  EXPECT_EQ(text, "before");
  EXPECT_EQ(small, -7);
  EXPECT_EQ(large, -5'000'000'000);
  EXPECT_EQ(bits, 18446744073709551615u);
  EXPECT_EQ(narrow, 0.5f);
  EXPECT_EQ(wide, 1e300);
  EXPECT_TRUE(flag);
  EXPECT_FALSE(untouched);
  EXPECT_EQ(maybe_text, "");
  EXPECT_EQ(maybe_small, 3);
  EXPECT_EQ(maybe_bits, 10u);
  EXPECT_EQ(absent, std::nullopt);
}

TEST(CommandLine, InvalidAndTooLargeNumbersAreRefusedWithOptionAndValue) {
  int32_t small = 4;
  uint64_t bits = 4;
  CommandLine line("A test.");
  line.Add("--small", &small, "");
  line.Add("--bits", &bits, "");
  EXPECT_THAT(Refusal(line, {"--small", "x"}), AllOf(HasSubstr("--small"), HasSubstr("x")));
  EXPECT_THAT(Refusal(line, {"--small", "3000000000"}), HasSubstr("3000000000"));
  for (const char* text : {"-1", "+1", "", "1.5", "18446744073709551616"}) {
    EXPECT_THAT(Refusal(line, {std::string("--bits=") + text, "--small=5"}), HasSubstr("--bits"));
  }
  EXPECT_THAT(Refusal(line, {"--bits", "-1"}), HasSubstr("--bits: is -1, must be 0 to 2^64-1"));
  EXPECT_EQ(bits, 4u);
}

TEST(CommandLine, ARangeIncludesItsEndsAndNothingBeyond) {
  int32_t count = 0;
  double share = 0;
  uint64_t blocks = 0;
  int64_t timeout = 0;
  CommandLine line("A test.");
  line.Add("--count", &count, "").Range(1, 64);
  line.Add("--share", &share, "").Range(0.0, 1.0);
  line.Add("--blocks", &blocks, "").Range(1, 1 << 24);
  line.Add("--timeout", &timeout, "").Range(int64_t{0}, int64_t{1} << 40);
  EXPECT_EQ(Parse(line, {"--count=1", "--share=1", "--blocks=1", "--timeout=0"}), std::nullopt);
  EXPECT_EQ(
      Parse(line, {"--count=64", "--share=0", "--blocks=16777216", "--timeout", "1099511627776"}),
      std::nullopt);
  EXPECT_THAT(Refusal(line, {"--count=0"}), AllOf(HasSubstr("--count"), HasSubstr("1 to 64")));
  EXPECT_THAT(Refusal(line, {"--count=65"}), HasSubstr("65"));
  EXPECT_THAT(Refusal(line, {"--share=1.001"}), HasSubstr("--share"));
  EXPECT_THAT(Refusal(line, {"--blocks=0"}), HasSubstr("--blocks"));
  EXPECT_THAT(Refusal(line, {"--timeout=-1"}), HasSubstr("--timeout"));
  EXPECT_THAT(Refusal(line, {"--timeout=1099511627777"}), HasSubstr("0 to 1099511627776"));
}

TEST(CommandLine, ARefusalNamesTheRange) {
  int32_t count = 1;
  float share = 1;
  std::vector<int32_t> ids;
  CommandLine line("A test.");
  line.Add("--count", &count, "").Range(1, 64);
  line.Add("--share", &share, "").Range(0.5, 1.0);
  line.Add("--id", &ids, "").TakesOne().Range(0, 9);
  for (const char* text : {"x", "2.5", "99999999999", "99999999999999999999999"}) {
    EXPECT_EQ(Refusal(line, {std::string("--count=") + text}),
              StrCat("--count: is ", text, ", must be 1 to 64 (see program --help)\n"));
  }
  for (const char* text : {"nan", "inf", "-inf", "0.4", "x"}) {
    EXPECT_EQ(Refusal(line, {"--share", text}),
              StrCat("--share: is ", text, ", must be 0.5 to 1 (see program --help)\n"));
  }
  EXPECT_THAT(Refusal(line, {"--id=3", "--id=10"}), HasSubstr("--id: is 10, must be 0 to 9"));
  EXPECT_EQ(count, 1);
  EXPECT_EQ(share, 1);
  EXPECT_THAT(Help(line), AllOf(HasSubstr("Range: 1 to 64."), HasSubstr("Range: 0.5 to 1."),
                                HasSubstr("Range: 0 to 9.")));
}

TEST(CommandLine, RepeatedOptionsCollectAndTakeOneEachWhereToldTo) {
  std::vector<std::string> many;
  std::vector<std::string> one_each;
  std::vector<int32_t> ids;
  CommandLine line("A test.");
  line.Add("--many", &many, "");
  line.Add("--one", &one_each, "").TakesOne();
  line.Add("--id", &ids, "").TakesOne();
  EXPECT_EQ(Parse(line, {"--many", "a", "b", "--one", "c d", "--one=e", "--id=1", "--id", "2",
                         "--many=f"}),
            std::nullopt);
  EXPECT_THAT(many, ElementsAre("a", "b", "f"));
  EXPECT_THAT(one_each, ElementsAre("c d", "e"));
  EXPECT_THAT(ids, ElementsAre(1, 2));
  EXPECT_THAT(Refusal(line, {"--one", "c", "d"}), HasSubstr("d"));
}

TEST(CommandLine, AParsersErrorFollowsTheOptionsName) {
  Arguments seen;
  const auto refuse_x = [&seen](const std::string& text) {
    seen.push_back(text);
    return text == "x" ? absl::InvalidArgumentError("is x, must be another") : absl::OkStatus();
  };
  CommandLine line("A test.");
  line.AddParsed("--single", refuse_x, "");
  line.AddParsedList("--list", refuse_x, "").TakesOne();
  EXPECT_EQ(Parse(line, {"--list", "a", "--list=b", "--single", "c"}), std::nullopt);
  EXPECT_THAT(seen, UnorderedElementsAre("a", "b", "c"));
  EXPECT_THAT(Refusal(line, {"--single", "x"}), HasSubstr("--single: is x, must be another"));
  EXPECT_THAT(Refusal(line, {"--list", "a", "--list", "x"}),
              HasSubstr("--list: is x, must be another"));
}

TEST(CommandLine, AnAddressToConnectToIsChecked) {
  std::vector<std::string> routers;
  CommandLine line("A test.");
  line.Add("--router", &routers, "").IsHostPort();
  EXPECT_EQ(Parse(line, {"--router", "[::1]:80", "--router=a:1"}), std::nullopt);
  EXPECT_THAT(routers, ElementsAre("[::1]:80", "a:1"));
  EXPECT_THAT(Refusal(line, {"--router", "a:1", "--router", "garbage"}),
              HasSubstr("--router: \"garbage\" is not HOST:PORT"));
}

TEST(CommandLine, AHelpThatCannotBeWrittenIsAFailure) {
  CommandLine line("A test.");
  std::optional<int> ended;
  {
    const FullStandardOutput full;
    ended = Parse(line, {"--help"});
  }
  EXPECT_EQ(ended, kExitFailed);
}

TEST(CommandLine, RequiredExcludedChosenAndUnknownOptionsAreChecked) {
  std::string a;
  std::string b;
  std::string c;
  CommandLine line("A test.");
  CommandLine::Option option_a = line.Add("--a", &a, "").Required();
  line.Add("--b", &b, "").Excludes(option_a);
  line.Add("--c", &c, "").OneOf({"red", "green"});
  EXPECT_EQ(Parse(line, {"--a", "1", "--c", "green"}), std::nullopt);
  EXPECT_THAT(Refusal(line, {"--c", "red"}), HasSubstr("--a is required"));
  EXPECT_THAT(Refusal(line, {"--a", "1", "--b", "2"}),
              AllOf(HasSubstr("--a"), HasSubstr("--b"), HasSubstr("excludes")));
  EXPECT_THAT(Refusal(line, {"--a=1", "--c=blue"}), AllOf(HasSubstr("blue"), HasSubstr("red")));
  EXPECT_THAT(Refusal(line, {"--a=1", "--d"}), HasSubstr("--d"));
  EXPECT_THAT(Refusal(line, {"--a"}), HasSubstr("--a"));
}

TEST(CommandLine, SettingsAreOptionsAndFlagsCanBeNegated) {
  int32_t blocks = 16;
  bool cache = true;
  SettingList settings;
  settings.Add("blocks", &blocks, 1, 128, "How many.");
  settings.Add("cache", &cache, "Whether to keep.");
  CommandLine line("A test.");
  line.AddSettings(settings, "Pool");
  EXPECT_EQ(Parse(line, {"--blocks", "32", "--no-cache"}), std::nullopt);
  EXPECT_EQ(blocks, 32);
  EXPECT_FALSE(cache);
  EXPECT_EQ(Parse(line, {"--cache"}), std::nullopt);
  EXPECT_TRUE(cache);
  EXPECT_THAT(Refusal(line, {"--blocks", "129"}),
              Eq("--blocks: \"129\" is not in the range 1–128 (see program --help)\n"));
  EXPECT_THAT(Help(line), AllOf(HasSubstr("Pool:"), HasSubstr("How many. Range: 1 to 128."),
                                HasSubstr("Default: 16."), HasSubstr("--no-cache")));
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

TEST(CommandLine, KnowsWhetherAnOptionWasGiven) {
  float value = 1;
  CommandLine line("A test.");
  CommandLine& command = line.AddCommand("it", "");
  command.Add("--value", &value, "");
  command.OnRun([] { return 0; });
  EXPECT_EQ(RunLine(line, {"it"}), 0);
  EXPECT_FALSE(command.IsGiven("--value"));
  EXPECT_EQ(RunLine(line, {"it", "--value", "1"}), 0);
  EXPECT_TRUE(command.IsGiven("--value"));
}

TEST(CommandLine, AnOptionalValueHasADefaultOfItsOwn) {
  for (const auto& [arguments, value] : {std::pair<Arguments, double>{{}, 0},
                                         {{"--every"}, 2},
                                         {{"--every=5"}, 5},
                                         {{"--every", "7"}, 7},
                                         {{"--every", "--flag"}, 2}}) {
    double every = 0;
    bool flag = false;
    CommandLine line("A test.");
    line.Add("--every", &every, "").Range(0.5, 60.0).OptionalValue("2");
    line.AddFlag("--flag", &flag, "");
    EXPECT_EQ(Parse(line, arguments), std::nullopt);
    EXPECT_EQ(every, value);
  }
  double every = 0;
  CommandLine line("A test.");
  line.Add("--every", &every, "").Range(0.5, 60.0).OptionalValue("2");
  EXPECT_THAT(Refusal(line, {"--every=0.1"}), HasSubstr("must be 0.5 to 60"));
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

TEST(CommandLine, AnAddressToListenAtMayHavePort0) {
  std::string address;
  CommandLine line("A test.");
  line.Add("--listen", &address, "").IsListenAddress();
  EXPECT_EQ(Parse(line, {"--listen=127.0.0.1:0"}), std::nullopt);
  EXPECT_THAT(Refusal(line, {"--listen=127.0.0.1:99999"}), HasSubstr("99999"));
}

// A program with two commands. "serve" has settings and two options; one of them reads the
// environment.
class Sources : public ::testing::Test {
 protected:
  Sources() {
    settings_.Add("blocks", &blocks_, 1, 128, "How many.");
    settings_.Add("cache", &cache_, "Whether to keep.");
    serve_.AddSettings(settings_, "Pool");
    serve_.Add("--router", &router_, "").FromEnvironment();
    serve_.Add("--once", &once_, "");
    line_.AddCommand("status", "Shows");
  }
  ~Sources() override {
    for (const char* name : {"BATON_BLOCKS", "BATON_CACHE", "BATON_ROUTER", "BATON_ONCE"})
      unsetenv(name);
  }

  int32_t blocks_ = 16;
  bool cache_ = true;
  std::string router_ = "none";
  std::string once_ = "none";
  SettingList settings_;
  CommandLine line_{"A test."};
  CommandLine& serve_ = line_.AddCommand("serve", "Serves");
};

TEST_F(Sources, SettingsAndMarkedOptionsAreReadFromVariables) {
  setenv("BATON_BLOCKS", "32", 1);
  setenv("BATON_CACHE", "false", 1);
  setenv("BATON_ROUTER", "a:1", 1);
  setenv("BATON_ONCE", "given", 1);
  EXPECT_EQ(Parse(line_, {"serve"}), std::nullopt);
  EXPECT_EQ(blocks_, 32);
  EXPECT_FALSE(cache_);
  EXPECT_EQ(router_, "a:1");
  EXPECT_EQ(once_, "none");  // unmarked options are read from the command line only
}

TEST_F(Sources, TheCommandLineOverridesTheVariable) {
  setenv("BATON_BLOCKS", "32", 1);
  EXPECT_EQ(Parse(line_, {"serve", "--blocks=64"}), std::nullopt);
  EXPECT_EQ(blocks_, 64);
}

TEST_F(Sources, AWrongVariableIsAnErrorOnlyForTheCommandsThatReadIt) {
  setenv("BATON_BLOCKS", "129", 1);
  EXPECT_THAT(Refusal(line_, {"serve"}), HasSubstr("--blocks: \"129\" is not in the range 1–128"));
  EXPECT_EQ(Parse(line_, {"status"}), std::nullopt);
}

TEST_F(Sources, AFileGivesOptionsByCommandAndTheCommandLineOverridesIt) {
  const std::string path = ::testing::TempDir() + "baton_command_line_test.toml";
  std::ofstream(path) << "[serve]\nblocks = 64\ncache = false\nonce = \"from the file\"\n";
  setenv("BATON_BLOCKS", "32", 1);
  EXPECT_EQ(Parse(line_, {"serve", "--config", path}), std::nullopt);
  EXPECT_EQ(blocks_, 64);
  EXPECT_FALSE(cache_);
  EXPECT_EQ(once_, "from the file");
  EXPECT_EQ(Parse(line_, {"--config", path, "serve", "--blocks=96"}), std::nullopt);
  EXPECT_EQ(blocks_, 96);
}

TEST_F(Sources, AMissingFileOrAnUnknownNameInAFileIsRefused) {
  EXPECT_THAT(Refusal(line_, {"serve", "--config", "/nowhere"}), HasSubstr("/nowhere"));
  const std::string path = ::testing::TempDir() + "baton_command_line_test_unknown.toml";
  std::ofstream(path) << "[serve]\nblockz = 64\n";
  EXPECT_THAT(Refusal(line_, {"serve", "--config", path}), HasSubstr("serve.blockz"));
}

TEST_F(Sources, TheSettingsCanBePrintedInPlaceOfARun) {
  EXPECT_EQ(Help(line_, {"serve", "--blocks=32", "--show-settings"}),
            "blocks = 32  (default 16)\ncache = true\n");
  EXPECT_THAT(Refusal(line_, {"serve", "--blocks=129", "--show-settings"}), HasSubstr("129"));
}

TEST(CommandLine, AnOptionThatNeedsAnotherIsRefusedWithoutIt) {
  CommandLine line("A test.");
  bool file = false;
  bool resume = false;
  const CommandLine::Option needed = line.AddFlag("--file", &file, "A file");
  line.AddFlag("--resume", &resume, "Resume").Needs(needed);
  EXPECT_THAT(Refusal(line, {"--resume"}), HasSubstr("--resume requires --file"));
  EXPECT_EQ(Parse(line, {"--resume", "--file"}), std::nullopt);
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
