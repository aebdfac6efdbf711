// Choice of the workers for a command: --worker NAME, --worker HOST:PORT or --all. The status of a
// router resolves names.
//
// Thread safety: belongs to one thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "cli/client_commands.h"
#include "cli/connection_flags.h"
#include "common/command_line.h"

namespace baton {

struct WorkerChoice {
  std::string router = kDefaultRouter;
  std::string worker = {};  // a name, or HOST:PORT
  bool all = false;
  ConnectionFlags connection = {};
};

// Adds --worker, --all, --router and the flags of the connection.
void AddWorkerFlags(CommandLine& command, WorkerChoice* choice);

struct NamedWorker {
  std::string name;
  std::string address;  // HOST:PORT
};

// Returns the chosen workers of `status`, ordered by name. NotFound has the nearest name, or all
// names. REQUIRES: choice.all, or a name in choice.worker.
absl::StatusOr<std::vector<NamedWorker>> FindWorkers(const WorkerChoice& choice,
                                                     const v1::GetStatusResponse& status);

// Runs `act` with a channel to each chosen worker and prints the result; with --all and `named`,
// after the worker's name. After an error, continues with the next worker. Returns the exit code: 0
// if all succeeded, else that of the first error.
using WorkerAction =
    std::function<absl::StatusOr<std::string>(const std::shared_ptr<grpc::Channel>& channel)>;
int ForEachWorker(const WorkerChoice& choice, const WorkerAction& act, bool named = true);

}  // namespace baton
