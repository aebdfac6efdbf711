// What the workers' mains share: one program, whose role is data. It has flags, the engine, and the
// server around it (worker_server.h); at the end the server goes first, and only then the engine.
//
// Thread safety: runs on the main thread.
#pragma once

#include <string>
#include <vector>

#include "worker_rpc/worker_server.h"

namespace baton {

struct WorkerProgram {
  std::string name;         // "baton-prefill-worker"
  std::string description;  // one sentence for --help
  std::string id_prefix;    // "prefill": of worker ids made up here
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
  std::vector<RoleService> role_services;  // one a role that it plays
};

// Returns the process's exit code: common/exit_code.h.
int RunWorkerMain(int argc, char** argv, const WorkerProgram& program);

}  // namespace baton
