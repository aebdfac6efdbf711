// Shell completion of a program's commands, options and values, made of what its command line
// declares.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "common/command_description.h"

namespace baton {

// A script to source, or to put where the shell looks for completions. An option without choices
// completes its value with file names.
std::string BashCompletion(const CommandDescription& program);
std::string ZshCompletion(const CommandDescription& program);
std::string FishCompletion(const CommandDescription& program);

}  // namespace baton
