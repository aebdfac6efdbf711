#include "worker/worker_programs.h"

#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "worker_rpc/worker_program.h"

namespace baton {
namespace {

WorkerProgram WorkerOfAnyRole() {
  return {.name = "baton-worker",
          .description =
              "Computes prompts, generates tokens, or both. Its role may change while it serves.",
          .id_prefix = "worker",
          .role = v1::WORKER_ROLE_BOTH,
          .has_role_flag = true,
          .role_services = {PrefillRoleService(), DecodeRoleService()}};
}

WorkerProgram PrefillWorker() {
  WorkerProgram program = WorkerOfAnyRole();
  program.name = "baton-prefill-worker";
  program.description =
      "Computes prompts chunk by chunk and sends their KV blocks to decode workers. The same as "
      "baton-worker --role prefill.";
  program.id_prefix = "prefill";
  program.role = v1::WORKER_ROLE_PREFILL;
  program.has_role_flag = false;
  return program;
}

WorkerProgram DecodeWorker() {
  WorkerProgram program = WorkerOfAnyRole();
  program.name = "baton-decode-worker";
  program.description =
      "Generates tokens, from KV blocks that prefill workers send or that it computes itself. The "
      "same as baton-worker --role decode.";
  program.id_prefix = "decode";
  program.role = v1::WORKER_ROLE_DECODE;
  program.has_role_flag = false;
  return program;
}

}  // namespace

int RunWorkerOfAnyRole(int argc, char** argv) {
  return RunWorkerMain(argc, argv, WorkerOfAnyRole());
}
int RunPrefillWorker(int argc, char** argv) { return RunWorkerMain(argc, argv, PrefillWorker()); }
int RunDecodeWorker(int argc, char** argv) { return RunWorkerMain(argc, argv, DecodeWorker()); }

}  // namespace baton
