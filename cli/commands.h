// The subcommands of `baton`. Each Add… function adds its flags to `app` and a callback that runs
// it and writes the exit code.
// Exit codes: common/exit_code.h.
#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"

namespace baton {

// Local commands: no gRPC.
void AddRunCommand(CLI::App& app, int& exit_code);
void AddPerplexityCommand(CLI::App& app, int& exit_code);
// Returns the `inspect` command, to which `inspect worker` can be added.
CLI::App* AddInspectCommand(CLI::App& app, int& exit_code);

// Prints "baton: CODE: message" on standard error; the exit code for this kind of error.
int ReportError(const absl::Status& status);

}  // namespace baton
