// Description of a program's command line as data, for shell completion and manual pages.
//
// Thread safety: plain data.
#pragma once

#include <string>
#include <vector>

namespace baton {

struct OptionDescription {
  std::vector<std::string> names = {};    // "--json", "--no-json"; empty for a positional argument
  std::string positional = {};            // "DIRECTORY"; empty for an option
  std::string value = {};                 // "INT", "TEXT"; empty for a flag
  bool value_is_optional = false;         // "--watch" and "--watch=5"
  std::vector<std::string> choices = {};  // the only valid values; empty: any value
  std::string help = {};                  // sentences, with range and default
  std::string group = {};                 // heading in the help
  bool repeatable = false;
};

struct CommandDescription {
  std::vector<std::string> path = {};  // names from the program on: {"baton", "inspect", "model"}
  std::string description = {};
  std::vector<OptionDescription> options = {};  // without those of the commands above
  std::string epilogue = {};                    // text after the options
  std::vector<CommandDescription> commands = {};
};

}  // namespace baton
