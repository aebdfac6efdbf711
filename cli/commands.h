// The commands of `baton`. Each Add… function adds one to `line`, with its flags and what it runs.
// Exit codes: common/exit_code.h.
#pragma once

#include "common/command_line.h"

namespace baton {

// Local commands: no gRPC.
void AddRunCommand(CommandLine& line);
void AddPerplexityCommand(CommandLine& line);
void AddSimulateCommand(CommandLine& line);
// Adds `completion` and `man`. They cover all commands of `line`, also those that are added later.
void AddDocumentationCommands(CommandLine& line);
void AddCertsCommand(CommandLine& line);
void AddKeysCommand(CommandLine& line);
// Adds `metrics` to the `inspect` command.
void AddMetricsCommand(CommandLine& inspect);
// Adds `mock` to the command `bench`.
void AddBenchMockCommand(CommandLine& bench);
// Returns the `inspect` command, to which `inspect worker` can be added.
CommandLine& AddInspectCommand(CommandLine& line);

}  // namespace baton
