// Shell completion of a program's commands, options and values, generated from the declarations of
// its command line.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "common/command_description.h"

namespace baton {

// Returns a script that the shell can source, or load from its folder of completions. The value of
// an option without choices is completed with file names.
std::string BashCompletion(const CommandDescription& program);
std::string ZshCompletion(const CommandDescription& program);
std::string FishCompletion(const CommandDescription& program);

}  // namespace baton
