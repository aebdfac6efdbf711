// Options of a command line: their help and their names. Only common/command_line.cc includes this
// header, because CLI11 takes many seconds to compile.
//
// Thread safety: pure functions, except AddSentence.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

namespace baton {

// Returns true for an option without a value.
bool IsFlag(const CLI::Option& option);
// Adds a sentence to the option's help.
void AddSentence(CLI::Option& option, const std::string& sentence);
// Returns the whole help of an option, in sentences.
std::string FullHelp(const CLI::Option& option);

// Returns "--name" of each option, and "--no-name" of each flag that can be negated.
std::vector<std::string> OptionNames(const CLI::App& app);
std::vector<std::string> CommandNames(const CLI::App& app);
// Writes "--name=" as "--name" and an empty argument. CLI11 would take the next argument as the
// value.
std::vector<std::string> WithEmptyValues(std::span<const char* const> arguments);
// Returns an error if an option that needs a value is followed by the name of another option, which
// CLI11 would take as its value. Returns "" otherwise. `arguments`: the program's name first.
std::string OptionAsValue(const CLI::App& app, const std::vector<std::string>& arguments);
// Returns " (see baton up --help)" for the command "up".
std::string HelpHint(const CLI::App& app);

// Shows each option in one style: name and type, then sentences. It leaves out the variable of each
// option. The end of the help has one rule for all of them.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace baton
