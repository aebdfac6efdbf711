// baton-decode-worker: generates tokens, from KV that prefill workers send or that it computes
// itself.

#include "decode_worker/decode_service.h"
#include "worker_rpc/worker_program.h"

int main(int argc, char** argv) {
  return baton::RunWorkerMain(
      argc, argv,
      {.name = "baton-decode-worker",
       .description =
           "Generates tokens, from KV blocks that prefill workers send or that it computes itself.",
       .id_prefix = "decode",
       .role = baton::v1::WORKER_ROLE_DECODE,
       .role_services = {baton::DecodeRoleService()}});
}
