#include "common/man_page.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/command_line.h"
#include "common/exit_code.h"

namespace baton {
namespace {

// Escapes text for troff: hyphens stay copyable, and no line starts with a macro.
std::string Escaped(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    line = absl::StrReplaceAll(line, {{"\\", "\\e"}, {"-", "\\-"}});
    if (line.starts_with('.') || line.starts_with('\'')) line.insert(0, "\\&");
  }
  return absl::StrJoin(lines, "\n");
}

std::string Bold(const std::string& text) { return absl::StrCat("\\fB", Escaped(text), "\\fR"); }

std::string Italic(const std::string& text) { return absl::StrCat("\\fI", Escaped(text), "\\fR"); }

std::string PageName(const CommandDescription& command) { return absl::StrJoin(command.path, "-"); }

// Returns the header of an option, such as "--watch[=FLOAT]".
std::string Header(const OptionDescription& option) {
  if (option.names.empty()) return Italic(option.positional);
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(Bold(name));
  std::string out = absl::StrJoin(names, ", ");
  if (option.value.empty()) return out;
  absl::StrAppend(&out, option.value_is_optional ? "[=" : " ", Italic(option.value),
                  option.value_is_optional ? "]" : "", option.repeatable ? " ..." : "");
  return out;
}

void AppendOption(const OptionDescription& option, std::string& out) {
  absl::StrAppend(&out, ".TP\n", Header(option), "\n", Escaped(option.help), "\n");
}

void AppendOptions(const CommandDescription& command, std::string& out) {
  std::vector<std::string> groups;
  for (const OptionDescription& option : command.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  absl::StrAppend(&out, ".SH OPTIONS\n");
  for (const std::string& name : groups) {
    if (groups.size() > 1) absl::StrAppend(&out, ".SS ", Escaped(name), "\n");
    for (const OptionDescription& option : command.options) {
      if (option.group == name) AppendOption(option, out);
    }
  }
}

void AppendAsItStands(const std::string& title, const std::string& text, std::string& out) {
  absl::StrAppend(&out, ".SH ", title, "\n.nf\n", Escaped(text), "\n.fi\n");
}

std::string Page(const CommandDescription& program, const CommandDescription& command) {
  const std::string name = PageName(command);
  std::string out = absl::StrCat(".TH ", absl::AsciiStrToUpper(Escaped(name)), " 1 \"\" \"",
                                 Escaped(ProgramVersion()), "\" \"Baton\"\n.SH NAME\n",
                                 Escaped(name), " \\- ", Escaped(command.description),
                                 "\n.SH SYNOPSIS\n", Bold(absl::StrJoin(command.path, " ")));
  if (!command.commands.empty()) absl::StrAppend(&out, " ", Italic("COMMAND"));
  absl::StrAppend(&out, " [", Italic("OPTION"), "]...");
  for (const OptionDescription& option : command.options) {
    if (option.names.empty()) absl::StrAppend(&out, " ", Italic(option.positional));
  }
  absl::StrAppend(&out, "\n");
  if (!command.commands.empty()) {
    absl::StrAppend(&out, ".SH COMMANDS\n");
    for (const CommandDescription& below : command.commands) {
      absl::StrAppend(&out, ".TP\n", Bold(below.path.back()), "\n", Escaped(below.description),
                      ". See ", Bold(PageName(below)), "(1).\n");
    }
  }
  AppendOptions(command, out);
  if (!command.epilogue.empty()) AppendAsItStands("NOTES", command.epilogue, out);
  AppendAsItStands("CONFIGURATION", kSourcesHelp, out);
  AppendAsItStands("EXIT STATUS", kExitCodeHelp, out);
  if (&program != &command)
    absl::StrAppend(&out, ".SH SEE ALSO\n", Bold(PageName(program)), "(1)\n");
  return out;
}

void AppendPages(const CommandDescription& program, const CommandDescription& command,
                 std::vector<ManPage>& out) {
  out.push_back({.file_name = PageName(command) + ".1", .text = Page(program, command)});
  for (const CommandDescription& below : command.commands) AppendPages(program, below, out);
}

}  // namespace

std::vector<ManPage> ManPages(const CommandDescription& program) {
  std::vector<ManPage> out;
  AppendPages(program, program, out);
  return out;
}

void AddManPageFlag(CommandLine& line) {
  line.AddPrintFlag("--man-page", "Print a manual page in troff format and end",
                    [&line] { return ManPages(line.Describe()).front().text; });
}

}  // namespace baton
