// baton-prefill-worker: computes prompts and ships their KV to decode workers.

#include "prefill_worker/prefill_service.h"
#include "worker_rpc/worker_program.h"

int main(int argc, char** argv) {
  return baton::RunWorkerMain(
      argc, argv,
      {.name = "baton-prefill-worker",
       .description =
           "Computes prompts chunk by chunk and ships their KV blocks to decode workers.",
       .id_prefix = "prefill",
       .service_name = baton::v1::PrefillWorker::service_full_name(),
       .role = baton::v1::WORKER_ROLE_PREFILL,
       .make_service = [](baton::Engine* engine, baton::CallGate* gate) {
         return std::make_unique<baton::PrefillService>(engine, gate);
       }});
}
