// What a process's exit code tells whoever started it; the same table for every program here.
//
//   0    success; for a service: a clean end after SIGINT or SIGTERM
//   1    the work failed: a job, a request, or what it needs of others (a router, a port, memory)
//   2    the command line is wrong, or a file or value that it names
//   130  a command was ended by Ctrl-C or SIGTERM before its work was done
//
// Thread safety: pure functions.
#pragma once

#include "absl/status/status.h"

namespace baton {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

// 0 for OK; 2 where the caller can only ask for something else (InvalidArgument, NotFound,
// OutOfRange, PermissionDenied, Unimplemented, DataLoss: a file that is damaged); else 1.
int ExitCodeOf(const absl::Status& status);

// The table above as help texts show it.
inline constexpr char kExitCodeHelp[] =
    "Exit codes: 0 success; 1 the work failed; 2 the command line is wrong, or a file or value "
    "that\n"
    "it names; 130 ended by Ctrl-C or SIGTERM before the work was done.";

}  // namespace baton
