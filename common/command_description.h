// What a program's command line takes, as data: for shell completion and manual pages.
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
  std::vector<std::string> choices = {};  // values, where only these are valid
  std::string help = {};                  // sentences, also of range and default
  std::string group = {};                 // the heading that it stands under
  bool repeatable = false;
};

struct CommandDescription {
  std::vector<std::string> path = {};  // names from the program on: {"baton", "inspect", "model"}
  std::string description = {};
  std::vector<OptionDescription> options = {};  // those of commands above are not repeated
  std::string epilogue = {};                    // text behind the options
  std::vector<CommandDescription> commands = {};
};

}  // namespace baton
