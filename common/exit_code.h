// Exit codes of every Baton program.
//
//   0    success; for a service: a clean end after SIGINT or SIGTERM
//   1    the work failed: a job, a request, or something it needs (a router, a port, memory)
//   2    the command line is wrong, or a file or value that it names
//   3    a worker's device failed: only a new process can use it
//   130  Ctrl-C or SIGTERM ended a command before its work was done
//
// Thread safety: pure functions.
#pragma once

#include "absl/status/status.h"

namespace baton {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitDeviceFailed = 3;
inline constexpr int kExitInterrupted = 130;

// Returns 0 for OK; 2 for errors that only another command line can avoid (InvalidArgument,
// NotFound, OutOfRange, PermissionDenied, Unimplemented, DataLoss: a damaged file); else 1.
int ExitCodeOf(const absl::Status& status);

// The table above, as help texts show it.
inline constexpr char kExitCodeHelp[] =
    "Exit codes: 0 success; 1 the work failed; 2 the command line is wrong, or a file or value "
    "that\n"
    "it names; 3 a worker's device failed; 130 ended by Ctrl-C or SIGTERM before the work was "
    "done.";

}  // namespace baton
