// Reports the outcome of a command: an error on standard error, and the exit code
// (common/exit_code.h).
//
// Thread safety: from any thread; PrintResult from one at a time.
#pragma once

#include <cstdio>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

// Prints "baton: CODE: message" on standard error. Returns the exit code for this kind of error.
int ReportError(const absl::Status& status);

// Prints a part of the results and flushes it. Returns false if any output since the start was not
// written. The first time, it also reports the reason on standard error.
bool PrintResult(std::string_view text);

// Flushes `output`. Returns Unavailable if any data printed to it was not written, for example
// because a disk is full.
absl::Status CheckWritten(std::FILE* output);

// Ends a program: returns its exit code. This is `exit_code`, except that a success with lost
// results becomes an error.
int EndCommand(int exit_code);

}  // namespace baton
