// Main program of every worker; the role is data. It parses flags, creates the engine, and runs the
// server (worker_server.h). At the end it destroys the server first, then the engine.
//
// A worker serves the services of all roles in every role. The role only tells routers for which
// requests to choose it, and Worker.SetRole changes it.
//
// Thread safety: main thread only.
#pragma once

#include <string>
#include <vector>

#include "worker_rpc/worker_server.h"

namespace baton {

struct WorkerProgram {
  std::string name;                                   // "baton-prefill-worker"
  std::string description;                            // one sentence for --help
  std::string id_prefix;                              // "prefill": prefix of generated worker ids
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;  // at the start
  bool has_role_flag = false;                         // --role changes it; `role` is the default
  std::vector<RoleService> role_services;
};

// Returns the process's exit code (common/exit_code.h).
int RunWorkerMain(int argc, char** argv, const WorkerProgram& program);

}  // namespace baton
