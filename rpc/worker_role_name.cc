#include "rpc/worker_role_name.h"

namespace baton {

const char* WorkerRoleName(v1::WorkerRole role) {
  switch (role) {
    case v1::WORKER_ROLE_PREFILL:
      return "prefill";
    case v1::WORKER_ROLE_DECODE:
      return "decode";
    case v1::WORKER_ROLE_BOTH:
      return "both";
    default:
      return "unknown";
  }
}

}  // namespace baton
