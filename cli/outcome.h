// Reports the outcome of a command: an error on standard error, and the exit code
// (common/exit_code.h).
//
// Thread safety: from any thread; PrintResult from one at a time.
#pragma once

#include <cstdio>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

// Prints "baton: CODE: message" on standard error; the exit code for this kind of error.
int ReportError(const absl::Status& status);

// Prints a part of the results and flushes it. False when not everything that was ever printed is
// written; the first time, the reason is an error on standard error.
bool PrintResult(std::string_view text);

// Unavailable when not everything that was ever printed to `output` is written: a full disk, for
// example. Flushes it.
absl::Status CheckWritten(std::FILE* output);

// The last thing a program does: the exit code of a command that ended with `exit_code`, which is
// no success where its results are lost on their way out.
int EndCommand(int exit_code);

}  // namespace baton
