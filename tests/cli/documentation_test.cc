// Manual pages of `baton` and all its commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/man_page.h"
#include "tests/cli/all_commands.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace baton
