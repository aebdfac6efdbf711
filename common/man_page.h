// Manual pages of a program and its commands, generated from the declarations of its command line.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "common/command_description.h"
#include "common/command_line.h"

namespace baton {

struct ManPage {
  std::string file_name;  // "baton-inspect-model.1"
  std::string text;       // man(7) macros
};

// Returns a page for the program and one for each command below it.
std::vector<ManPage> ManPages(const CommandDescription& program);

// Adds the flag --man-page, which prints the program's page. REQUIRES: `line` outlives the parse
// and has no commands.
void AddManPageFlag(CommandLine& line);

}  // namespace baton
