// baton-decode-worker: generates tokens, from KV that prefill workers send or that it computes
// itself.

#include "worker/worker_programs.h"

int main(int argc, char** argv) { return baton::RunDecodeWorker(argc, argv); }
