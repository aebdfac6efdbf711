// What the two workers' mains share: flags, engine, server, heartbeats, and the order in which they
// end.
//
// Order of the end: leave the registries, take no more calls, let running ones finish for a while,
// cancel the rest, stop the server (after which no call is left), and only then the engine.
//
// Thread safety: runs on the main thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "rpc/call_gate.h"
#include "worker_rpc/wire_conversion.h"

namespace baton {

struct WorkerProgram {
  std::string name;          // "baton-prefill-worker"
  std::string description;   // one sentence for --help
  std::string id_prefix;     // "prefill": of worker ids made up here
  std::string service_name;  // "baton.v1.PrefillWorker", for health checks
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
  // The role's own service. Engine and gate outlive it.
  std::function<std::unique_ptr<grpc::Service>(Engine*, CallGate*)> make_service;
};

// Returns the process's exit code: common/exit_code.h.
int RunWorkerMain(int argc, char** argv, const WorkerProgram& program);

}  // namespace baton
