#include "common/command_line_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CommandLineMessage, SaysCli11sMessagesPlainly) {
  EXPECT_EQ(PlainMessage("--seed: At Most 1 required but received 2"),
            "--seed: is given 2 times; must be given once");
  EXPECT_EQ(PlainMessage("--json: 1 required TEXT missing"), "--json: needs a value");
  EXPECT_EQ(PlainMessage("--a excludes --b"), "--a and --b cannot be given together");
  EXPECT_EQ(PlainMessage("--a requires --b"), "--a needs --b");
  EXPECT_EQ(PlainMessage("Could not convert: --share = x"),
            "--share: is x, which is not a value for it");
}

TEST(CommandLineMessage, KeepsEveryOtherMessage) {
  for (const char* const message :
       {"", "DIR is required", "--count: is x; must be 1 to 64",
        "--name: is 1 required; must be one of a, b", "Could not convert: "}) {
    EXPECT_EQ(PlainMessage(message), message);
  }
}

std::vector<std::string> Warnings(const std::vector<std::string>& names) {
  const std::vector<std::string> read = {"BATON_KV_BLOCKS", "BATON_NICE"};
  std::vector<std::string> known = read;
  known.push_back("BATON_KV_BLOCKED");
  const std::vector<std::string> of_options = {"BATON_TEMPERATURE", "BATON_NICE"};
  return WarningsOfVariables({.names = names, .known = known, .read = read, .options = of_options});
}

TEST(CommandLineMessage, AMistypedVariableIsAnsweredWithTheNearestOne) {
  EXPECT_THAT(
      Warnings({"BATON_KV_BLOKCS", "BATON_KV_BLOCK", "BATON_NCIE"}),
      ElementsAre("warning: the environment variable BATON_KV_BLOKCS has no effect; did you "
                  "mean BATON_KV_BLOCKS?",
                  "warning: the environment variable BATON_KV_BLOCK has no effect; did you "
                  "mean BATON_KV_BLOCKS?",
                  "warning: the environment variable BATON_NCIE has no effect; did you mean "
                  "BATON_NICE?"));
}

TEST(CommandLineMessage, AVariableOfAnOptionThatReadsNoneIsNamed) {
  EXPECT_THAT(Warnings({"BATON_TEMPERATURE", "BATON_NICE"}),
              ElementsAre("warning: the environment variable BATON_TEMPERATURE has no effect; give "
                          "the option instead"));
}

TEST(CommandLineMessage, KnownAndDistantVariablesAreNoMistakes) {
  EXPECT_THAT(Warnings({"BATON_KV_BLOCKS", "BATON_KV_BLOCKED", "BATON_TEST_MODEL", "BATON_NI",
                        "BATON_", "KV_BLOCKS", "ATON_NICE", ""}),
              IsEmpty());
}

}  // namespace
}  // namespace baton
