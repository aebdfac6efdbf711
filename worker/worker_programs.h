// The programs that run a worker. All three serve the services of both roles. They differ in the
// role at the start, and in their names.
//
// Thread safety: pure functions.
#pragma once

#include "worker_rpc/worker_program.h"

namespace baton {

WorkerProgram WorkerOfAnyRole();  // baton-worker --role ROLE
WorkerProgram PrefillWorker();    // baton-prefill-worker: baton-worker --role prefill
WorkerProgram DecodeWorker();     // baton-decode-worker: baton-worker --role decode

}  // namespace baton
