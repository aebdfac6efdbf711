#include "cli/man_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/cli/all_commands.h"

namespace baton {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Escaped(const std::string& text) { return absl::StrReplaceAll(text, {{"-", "\\-"}}); }

TEST(ManPage, EveryCommandHasAPageWithEveryOption) {
  CommandLine line("A test.", "baton");
  AddAllCommands(line);
  const CommandDescription program = line.Describe();
  const std::vector<CommandDescription> commands = AllCommands(program);
  const std::vector<ManPage> pages = ManPages(program);
  ASSERT_EQ(pages.size(), commands.size());
  for (size_t i = 0; i < commands.size(); ++i) {
    EXPECT_EQ(pages[i].file_name, absl::StrJoin(commands[i].path, "-") + ".1");
    for (const std::string& name : OptionsInHelp(commands[i].path)) {
      EXPECT_THAT(pages[i].text, HasSubstr("\\fB" + Escaped(name) + "\\fR")) << pages[i].file_name;
    }
    for (const CommandDescription& below : commands[i].commands) {
      EXPECT_THAT(pages[i].text, HasSubstr("\\fB" + Escaped(below.path.back()) + "\\fR"));
    }
    for (const char* section : {"NAME", "SYNOPSIS", "OPTIONS", "CONFIGURATION", "EXIT STATUS"}) {
      EXPECT_THAT(pages[i].text, HasSubstr(std::string("\n.SH ") + section + "\n"));
    }
  }
}

TEST(ManPage, TextNeverBecomesAMacro) {
  CommandDescription program;
  program.path = {"baton"};
  program.epilogue = ".so /etc/passwd\n'\\escape\nplain";
  for (const std::string& row :
       std::vector<std::string>(absl::StrSplit(ManPages(program)[0].text, '\n'))) {
    if (!row.starts_with('.') && !row.starts_with('\'')) continue;
    EXPECT_THAT(row, AnyOf(StartsWith(".TH "), StartsWith(".SH "), StartsWith(".SS "), ".TP", ".nf",
                           ".fi"));
  }
  EXPECT_THAT(ManPages(program)[0].text, HasSubstr("\n\\&'\\eescape\n"));
}

TEST(ManPage, AnOptionShowsItsValueAndItsHelp) {
  CommandDescription program;
  program.path = {"baton"};
  program.options = {{.names = {"--watch"},
                      .positional = "",
                      .value = "FLOAT",
                      .value_is_optional = true,
                      .help = "Again."},
                     {.names = {}, .positional = "DIRECTORY", .value = "TEXT"}};
  const std::string page = ManPages(program)[0].text;
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-watch\\fR[=\\fIFLOAT\\fR]\nAgain.\n"));
  EXPECT_THAT(page, HasSubstr("\\fBbaton\\fR [\\fIOPTION\\fR]... \\fIDIRECTORY\\fR\n"));
}

}  // namespace
}  // namespace baton
