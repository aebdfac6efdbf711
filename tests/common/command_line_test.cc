// Options of a command line: their types, checks and defaults.
#include "common/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/settings.h"
#include "common/str_cat.h"
#include "tests/common/command_line_runs.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

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
  EXPECT_THAT(Refusal(line, {"--bits", "-1"}), HasSubstr("--bits: is -1; must be 0 to 2^64-1"));
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
              StrCat("--count: is ", text, "; must be 1 to 64 (see program --help)\n"));
  }
  for (const char* text : {"nan", "inf", "-inf", "0.4", "x"}) {
    EXPECT_EQ(Refusal(line, {"--share", text}),
              StrCat("--share: is ", text, "; must be 0.5 to 1 (see program --help)\n"));
  }
  EXPECT_THAT(Refusal(line, {"--id=3", "--id=10"}), HasSubstr("--id: is 10; must be 0 to 9"));
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
    return text == "x" ? absl::InvalidArgumentError("is x; must be another") : absl::OkStatus();
  };
  CommandLine line("A test.");
  line.AddParsed("--single", refuse_x, "");
  line.AddParsedList("--list", refuse_x, "").TakesOne();
  EXPECT_EQ(Parse(line, {"--list", "a", "--list=b", "--single", "c"}), std::nullopt);
  EXPECT_THAT(seen, UnorderedElementsAre("a", "b", "c"));
  EXPECT_THAT(Refusal(line, {"--single", "x"}), HasSubstr("--single: is x; must be another"));
  EXPECT_THAT(Refusal(line, {"--list", "a", "--list", "x"}),
              HasSubstr("--list: is x; must be another"));
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
              HasSubstr("--a and --b cannot be given together"));
  EXPECT_THAT(Refusal(line, {"--a=1", "--c=blue"}),
              HasSubstr("--c: is blue; must be one of red, green"));
  EXPECT_THAT(Refusal(line, {"--a=1", "--c=red", "--c=red"}),
              HasSubstr("--c: is given 2 times; must be given once"));
  EXPECT_THAT(Refusal(line, {"--a=1", "--d"}), HasSubstr("--d"));
  EXPECT_THAT(Refusal(line, {"--a"}), HasSubstr("--a: needs a value"));
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
              Eq("--blocks: is 129; must be 1 to 128 (see program --help)\n"));
  EXPECT_THAT(Help(line), AllOf(HasSubstr("Pool:"), HasSubstr("How many. Range: 1 to 128."),
                                HasSubstr("Default: 16."), HasSubstr("--no-cache")));
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
  EXPECT_FALSE(command.IsGiven("--other")) << "the command has no such option";
}

TEST(CommandLine, ACommandWithItsOwnFunctionRunsWithAndWithoutACommandBelow) {
  std::string ran;
  std::string value;
  CommandLine line("A test.");
  CommandLine& both = line.AddCommand("both", "");
  both.Add("--value", &value, "");
  both.OnRun([&] {
    ran = "both";
    return 0;
  });
  both.AddCommand("below", "").OnRun([&] {
    ran = "below";
    return 0;
  });
  line.AddCommand("group", "").AddCommand("member", "").OnRun([] { return 0; });
  EXPECT_EQ(RunLine(line, {"both", "--value", "1"}), 0);
  EXPECT_EQ(ran, "both");
  EXPECT_EQ(value, "1");
  EXPECT_EQ(RunLine(line, {"both", "below"}), 0);
  EXPECT_EQ(ran, "below");
  EXPECT_THAT(Refusal(line, {"group"}), HasSubstr("name a command: member"));
  EXPECT_THAT(Refusal(line, {"both", "belov"}), HasSubstr("did you mean below?"));
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

TEST(CommandLine, AnOptionIsNoValueOfTheOneBeforeIt) {
  std::string file;
  std::string text;
  bool quick = false;
  CommandLine line("A test.");
  line.Add("--text", &text, "");
  line.OnRun([] { return 0; });
  CommandLine& command = line.AddCommand("do", "Does it.");
  command.Add("--file", &file, "");
  command.AddFlag("--quick", &quick, "");
  for (const std::string next : {"--quick", "--text", "--text=x", "--file", "--config"}) {
    EXPECT_EQ(Refusal(line, {"do", "--file", next}),
              "--file: needs a value; write --file=" + next +
                  " if that is the value (see program do --help)\n");
  }
  EXPECT_THAT(Refusal(line, {"--text", "--version"}), HasSubstr("--text: needs a value"));
  EXPECT_EQ(Parse(line, {"do", "--file=--quick"}), std::nullopt);
  EXPECT_EQ(file, "--quick");
  EXPECT_FALSE(quick);
  EXPECT_EQ(Parse(line, {"do", "--file", "--other", "--quick"}), std::nullopt);
  EXPECT_EQ(file, "--other");
  EXPECT_EQ(Parse(line, {"do", "--file", "do"}), std::nullopt);
  EXPECT_EQ(file, "do");
}

TEST(CommandLine, AValueMayBeEmpty) {
  std::string file = "default";
  std::string other;
  CommandLine line("A test.");
  line.Add("--file", &file, "");
  line.Add("--other", &other, "");
  EXPECT_EQ(Parse(line, {"--file=", "--other=x"}), std::nullopt);
  EXPECT_EQ(file, "");
  EXPECT_EQ(other, "x");
  file = "default";
  EXPECT_EQ(Parse(line, {"--file", "", "--other", "a="}), std::nullopt);
  EXPECT_EQ(file, "");
  EXPECT_EQ(other, "a=");
}

TEST(CommandLine, AnAddressToListenAtMayHavePort0) {
  std::string address;
  CommandLine line("A test.");
  line.Add("--listen", &address, "").IsListenAddress();
  EXPECT_EQ(Parse(line, {"--listen=127.0.0.1:0"}), std::nullopt);
  EXPECT_THAT(Refusal(line, {"--listen=127.0.0.1:99999"}), HasSubstr("99999"));
}

TEST(CommandLine, AnOptionThatNeedsAnotherIsRefusedWithoutIt) {
  CommandLine line("A test.");
  bool file = false;
  bool resume = false;
  const CommandLine::Option needed = line.AddFlag("--file", &file, "A file");
  line.AddFlag("--resume", &resume, "Resume").Needs(needed);
  EXPECT_THAT(Refusal(line, {"--resume"}), HasSubstr("--resume needs --file"));
  EXPECT_EQ(Parse(line, {"--resume", "--file"}), std::nullopt);
}

}  // namespace
}  // namespace baton
