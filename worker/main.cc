// baton-worker: computes prompts, generates tokens, or both.

#include "worker/worker_programs.h"

int main(int argc, char** argv) { return baton::RunWorkerOfAnyRole(argc, argv); }
