// The programs that run a worker. All three serve the services of both roles. They differ in the
// role at the start, and in their names. This header includes no other one, so the mains
// compile in no time.
//
// Each function is a whole main. It returns the exit code (common/exit_code.h).
//
// Thread safety: call one of them, once, from main.
#pragma once

namespace baton {

int RunWorkerOfAnyRole(int argc, char** argv);  // baton-worker --role ROLE
int RunPrefillWorker(int argc, char** argv);    // baton-prefill-worker: baton-worker --role prefill
int RunDecodeWorker(int argc, char** argv);     // baton-decode-worker: baton-worker --role decode

}  // namespace baton
