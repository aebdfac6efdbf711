// The commands that talk to a router or a worker, or start them all: generate, chat, status,
// inspect worker, up. Built only with gRPC. Exit codes: common/exit_code.h.
#pragma once

#include <CLI/CLI.hpp>

namespace baton {

inline constexpr char kDefaultRouter[] = "127.0.0.1:8090";

// Adds all of them; `inspect` gets `inspect worker`.
void AddClientCommands(CLI::App& app, CLI::App& inspect, int& exit_code);

void AddGenerateCommand(CLI::App& app, int& exit_code);
void AddChatCommand(CLI::App& app, int& exit_code);
void AddStatusCommand(CLI::App& app, int& exit_code);
void AddInspectWorkerCommand(CLI::App& inspect, int& exit_code);
void AddUpCommand(CLI::App& app, int& exit_code);

}  // namespace baton
