// baton-prefill-worker: computes prompts and sends their KV to decode workers.

#include "prefill_worker/prefill_service.h"
#include "worker_rpc/worker_program.h"

int main(int argc, char** argv) {
  return baton::RunWorkerMain(
      argc, argv,
      {.name = "baton-prefill-worker",
       .description =
           "Computes prompts chunk by chunk and sends their KV blocks to decode workers.",
       .id_prefix = "prefill",
       .role = baton::v1::WORKER_ROLE_PREFILL,
       .role_services = {baton::PrefillRoleService()}});
}
