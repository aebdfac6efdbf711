#include "common/config_file_message.h"

#include <algorithm>

#include "common/nearest_name.h"
#include "common/str_cat.h"

namespace baton {

std::string ConfigFileMessage(const std::string& file, std::string_view what,
                              const std::function<FileNames(const std::string& command)>& names) {
  constexpr std::string_view kWrongLine = "INI was not able to parse ";
  constexpr std::string_view kUnreadable = " was not readable (missing?)";
  if (what.ends_with(kUnreadable)) return StrCat("--config: ", file, " cannot be read");
  if (!what.starts_with(kWrongLine)) return StrCat("--config: ", std::string(what));
  std::string name(what.substr(kWrongLine.size()));
  // CLI11 marks the begin of a section with ".++" and its end with ".--".
  const bool is_section = name.ends_with(".++") || name.ends_with(".--");
  if (is_section) name.resize(name.size() - 3);
  const size_t dot = name.find('.');
  const std::string command = dot == std::string::npos ? "" : name.substr(0, dot);
  const FileNames top = names("");
  const std::string begin = StrCat("--config ", file, ": ");
  const std::string& section = is_section ? name : command;
  if (!section.empty() && std::ranges::find(top.commands, section) == top.commands.end()) {
    return StrCat(begin, UnknownName("command", section, top.commands));
  }
  const std::string option = command.empty() ? name : name.substr(dot + 1);
  if (option.starts_with("[")) {
    return StrCat(begin, "\"", option, "\" is neither an option nor a section such as [run]");
  }
  std::string message = StrCat(begin, command.empty() ? "" : StrCat("[", command, "]: "),
                               UnknownName("option", StrCat("--", option), names(command).options));
  if (command.empty() && !top.commands.empty()) {
    message += "; options of a command stand below its name, for example [run]";
  }
  return message;
}

}  // namespace baton
