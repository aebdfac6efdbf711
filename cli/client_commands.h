// The commands that need gRPC: generate, chat, status, inspect worker, resize, set-role,
// clear-cache, chunks, bench and up.
// They talk to a router or a worker, or start a fleet. Built only with gRPC. Exit codes:
// common/exit_code.h.
#pragma once

#include "common/command_line.h"

namespace baton {

inline constexpr char kDefaultRouter[] = "127.0.0.1:8090";

// Adds all of them to `line`, but `inspect worker` to `inspect`. From then on gRPC logs nothing,
// unless the environment has GRPC_VERBOSITY: an error of a command is one line.
void AddClientCommands(CommandLine& line, CommandLine& inspect);

void AddGenerateCommand(CommandLine& line);
void AddChatCommand(CommandLine& line);
void AddStatusCommand(CommandLine& line);
void AddInspectWorkerCommand(CommandLine& inspect);
void AddUpCommand(CommandLine& line);
void AddResizeCommand(CommandLine& line);
void AddSetRoleCommand(CommandLine& line);
void AddClearCacheCommand(CommandLine& line);
void AddChunksCommand(CommandLine& line);
void AddBenchCommand(CommandLine& line);

}  // namespace baton
