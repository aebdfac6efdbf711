// Command line of `baton` with all its commands, and the options that its help names.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "common/command_line.h"
#ifdef BATON_GRPC
#include "cli/client_commands.h"
#endif

namespace baton {

inline void AddAllCommands(CommandLine& line) {
  AddRunCommand(line);
  AddPerplexityCommand(line);
  AddSimulateCommand(line);
  [[maybe_unused]] CommandLine& inspect = AddInspectCommand(line);
#ifdef BATON_GRPC
  AddClientCommands(line, inspect);
#endif
  AddCertsCommand(line);
  AddKeysCommand(line);
  AddDocumentationCommands(line);
}

// Returns `command` and all commands below it.
inline std::vector<CommandDescription> AllCommands(const CommandDescription& command) {
  std::vector<CommandDescription> out = {command};
  for (const CommandDescription& below : command.commands) {
    for (CommandDescription& one : AllCommands(below)) out.push_back(std::move(one));
  }
  return out;
}

// Returns "--name" of every option that the command's --help lists at the start of a line. Does not
// use CommandLine::Describe.
inline std::set<std::string> OptionsInHelp(const std::vector<std::string>& path) {
  CommandLine line("A test.", "baton");
  AddAllCommands(line);
  std::vector<const char*> argv;
  for (const std::string& name : path) argv.push_back(name.c_str());
  argv.push_back("--help");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(line.Parse(static_cast<int>(argv.size()), argv.data()), 0);
  const std::string help = ::testing::internal::GetCapturedStdout();
  std::set<std::string> out;
  const std::regex begin("\n  (-[^ ]*)");
  const std::regex option("--[a-z][a-z0-9-]*");
  for (std::sregex_iterator at(help.begin(), help.end(), begin), end; at != end; ++at) {
    const std::string names = (*at)[1];
    for (std::sregex_iterator name(names.begin(), names.end(), option), last; name != last;
         ++name) {
      out.insert(name->str());
    }
  }
  return out;
}

}  // namespace baton
