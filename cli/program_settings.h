// Asks a program of the fleet for its settings from command line, file and environment variables.
// The program itself checks and prints them (--check).
//
// Thread safety: AskForSettings belongs to one thread (cli/child_process.h); the rest is pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/fleet_plan.h"

namespace baton {

// Returns a line for each setting. `what` names the program in errors ("the router").
//   InvalidArgument: the program refuses its arguments.
//   FailedPrecondition: it could not start with them, for example because an address is in use.
//   Cancelled: `interrupted`, which is polled, returned true.
//   Internal, DeadlineExceeded: the program cannot run or does not end.
absl::StatusOr<std::string> AskForSettings(const std::string& what, FleetMember member,
                                           const std::function<bool()>& interrupted);

// Returns VALUE from the line "NAME = VALUE  (default …)" of `settings`; empty if there is no such
// line.
std::string SettingValue(std::string_view settings, std::string_view name);

}  // namespace baton
