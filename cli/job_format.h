// Describes the lines of jobs and of their results.
//
// Thread safety: pure function.
#pragma once

#include <string>

namespace baton {

// Returns the format of job lines and of their results, for --help.
std::string JobFormatHelp();

}  // namespace baton
