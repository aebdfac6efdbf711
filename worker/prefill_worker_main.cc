// baton-prefill-worker: computes prompts and sends their KV to decode workers.

#include "worker/worker_programs.h"

int main(int argc, char** argv) { return baton::RunPrefillWorker(argc, argv); }
