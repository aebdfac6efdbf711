#include "common/config_file_message.h"

#include "common/str_cat.h"

namespace baton {

std::string ConfigFileMessage(const std::string& file, std::string_view what) {
  constexpr std::string_view kWrongLine = "INI was not able to parse ";
  if (!what.starts_with(kWrongLine)) return StrCat("--config: ", std::string(what));
  return StrCat("--config ", file, ": there is no option ",
                std::string(what.substr(kWrongLine.size())),
                ", or it is no line of TOML. Options of a command are in a section with its name, "
                "for example [up]");
}

}  // namespace baton
