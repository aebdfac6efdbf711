// How a command line's help shows an option. Only common/command_line.cc includes this
// header, because CLI11 takes many seconds to compile.
//
// Thread safety: pure functions, except AddSentence.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace baton {

// Returns true for an option without a value.
bool IsFlag(const CLI::Option& option);
// Adds a sentence to the option's help.
void AddSentence(CLI::Option& option, const std::string& sentence);
// Returns the whole help of an option, in sentences.
std::string FullHelp(const CLI::Option& option);

// Returns " (see baton up --help)" for the command "up".
std::string HelpHint(const CLI::App& app);

// Shows each option in one style: name and type, then sentences. It leaves out the variable of each
// option. The end of the help has one rule for all of them.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace baton
