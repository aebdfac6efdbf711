// Which workers a command is for: --worker NAME or HOST:PORT, or --all. Names are looked up in the
// status of a router.
//
// Thread safety: belongs to one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "cli/client_commands.h"
#include "common/command_line.h"

namespace baton {

struct WorkerChoice {
  std::string router = kDefaultRouter;
  std::string worker = {};  // a name, or HOST:PORT
  bool all = false;
};

// Adds --worker, --all and --router.
void AddWorkerFlags(CommandLine& command, WorkerChoice* choice);

struct NamedWorker {
  std::string name;
  std::string address;  // HOST:PORT
};

// The chosen workers, as `status` has them, by name. NotFound names the nearest name, or all
// of them. REQUIRES: choice.all or a name in choice.worker.
absl::StatusOr<std::vector<NamedWorker>> FindWorkers(const WorkerChoice& choice,
                                                     const v1::GetStatusResponse& status);

// Runs `act` with the address of each chosen worker and prints what it returns: with --all behind
// the worker's name. An error of one worker does not keep the others from their turn. Returns the
// exit code: 0 where all went well, else that of the first error.
using WorkerAction = std::function<absl::StatusOr<std::string>(const std::string& address)>;
int ForEachWorker(const WorkerChoice& choice, const WorkerAction& act);

}  // namespace baton
