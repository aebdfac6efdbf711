// The settings that a program of the fleet would have, from its command line, its file and its
// environment variables. The program itself prints them (--show-settings).
//
// Thread safety: AskForSettings belongs to one thread (cli/child_process.h); the rest is pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/fleet_plan.h"

namespace baton {

// A line for each setting. `what` names the program in errors ("the router").
//   InvalidArgument: the program refuses its arguments.
//   Cancelled: `interrupted`, which is polled, said so.
//   Internal, DeadlineExceeded: the program cannot run or does not end.
absl::StatusOr<std::string> AskForSettings(const std::string& what, FleetMember member,
                                           const std::function<bool()>& interrupted);

// The value in the line "NAME = VALUE  (default …)" of `settings`; empty where there is none.
std::string SettingValue(std::string_view settings, std::string_view name);

}  // namespace baton
