#include "common/man_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/settings.h"

namespace baton {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(ManPage, AProgramPrintsItsPageInPlaceOfARun) {
  int32_t blocks = 16;
  SettingList settings;
  settings.Add("blocks", &blocks, 1, 128, "blocks of the pool");
  CommandLine line("Tests pages.", "program");
  line.AddSettings(settings, "Service");
  AddManPageFlag(line);
  const char* const argv[] = {"program", "--man-page"};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(line.Parse(2, argv), 0);
  const std::string page = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(page, StartsWith(".TH PROGRAM 1 "));
  EXPECT_THAT(page, HasSubstr("program \\- Tests pages."));
  EXPECT_THAT(page, HasSubstr(".SS Service\n.TP\n\\fB\\-\\-blocks\\fR \\fIINT\\fR\n"
                              "Blocks of the pool. Range: 1 to 128. Default: 16.\n"));
}

}  // namespace
}  // namespace baton
