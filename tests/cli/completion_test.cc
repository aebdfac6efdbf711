#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/cli/all_commands.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

CommandDescription Program() {
  CommandLine line("A test.", "baton");
  AddAllCommands(line);
  return line.Describe();
}

// Returns the completions that bash offers for the last of `words`.
std::vector<std::string> Offered(const std::vector<std::string>& words) {
  const std::string path = ::testing::TempDir() + "/baton_completion_test.bash";
  std::ofstream(path) << BashCompletion(Program()) << "\nCOMP_WORDS=('"
                      << absl::StrJoin(words, "' '") << "')\nCOMP_CWORD=" << words.size() - 1
                      << "\n_baton\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  std::FILE* const shell = popen(("bash --norc " + path + " 2>&1").c_str(), "r");
  std::string said;
  for (int c; (c = std::fgetc(shell)) != EOF;) said += static_cast<char>(c);
  EXPECT_EQ(pclose(shell), 0) << said;
  return absl::StrSplit(said, '\n', absl::SkipEmpty());
}

TEST(Completion, BashOffersEveryOptionOfEveryCommand) {
  for (const CommandDescription& command : AllCommands(Program())) {
    const std::set<std::string> known = OptionsInHelp(command.path);
    EXPECT_TRUE(known.contains("--help"));
    std::vector<std::string> words = command.path;
    words.emplace_back("--");
    EXPECT_THAT(Offered(words), IsSupersetOf(known)) << absl::StrJoin(command.path, " ");
  }
}

TEST(Completion, BashOffersCommandsValuesAndFiles) {
  EXPECT_THAT(Offered({"baton", "ru"}), ElementsAre("run"));
  EXPECT_THAT(Offered({"baton", "inspect", ""}), AllOf(Contains("model"), Not(Contains("run"))));
  EXPECT_THAT(Offered({"baton", "run", "--transport", ""}),
              ElementsAre("none", "loopback", "tcp", "shm", "nccl"));
  EXPECT_THAT(Offered({"baton", "run", "--transport", "=", "t"}), ElementsAre("tcp"));
  EXPECT_THAT(Offered({"baton", "run", "--transport", "="}), Contains("shm"));
  EXPECT_THAT(Offered({"baton", "run", "--model", "/etc/pass"}), Contains("/etc/passwd"));
  EXPECT_THAT(Offered({"baton", "--config", "run", "run", "--top-"}),
              ElementsAre("--top-k", "--top-p"));
}

TEST(Completion, ZshAndFishHaveEveryOptionOfEveryCommand) {
  const std::string zsh = ZshCompletion(Program());
  const std::string fish = FishCompletion(Program());
  for (const CommandDescription& command : AllCommands(Program())) {
    const std::string path = absl::StrJoin(command.path, " ");
    const size_t begin = zsh.find("    ('" + path + "')\n");
    ASSERT_NE(begin, std::string::npos) << path;
    const std::string of_command = zsh.substr(begin, zsh.find(";;", begin) - begin);
    for (const std::string& name : OptionsInHelp(command.path)) {
      EXPECT_THAT(of_command, ::testing::ContainsRegex("'[*]?" + name + "(\\[|=)")) << path;
      EXPECT_THAT(fish, HasSubstr("'__baton_at \"" + path + "\"' -l " + name.substr(2) + " "));
    }
    for (const CommandDescription& below : command.commands) {
      EXPECT_THAT(of_command, HasSubstr("'" + below.path.back() + ":"));
      EXPECT_THAT(fish, HasSubstr("\"" + path + "\"' -f -a " + below.path.back() + " "));
    }
  }
}

// Every line closes its quotes, so a help text cannot end the script.
TEST(Completion, HelpTextsAreQuoted) {
  CommandDescription program;
  program.path = {"baton"};
  program.options = {{.names = {"--it"}, .positional = "", .value = "TEXT", .help = "it's [a]: b"}};
  EXPECT_THAT(ZshCompletion(program), HasSubstr("'--it=[it'\\''s (a), b]: :_files'"));
  EXPECT_THAT(FishCompletion(program), HasSubstr("-d 'it\\'s [a]: b'"));
}

}  // namespace
}  // namespace baton
