// Names of a worker's role on the wire, for people and for JSON.
//
// Thread safety: pure function.
#pragma once

#include "baton/v1/inference.pb.h"

namespace baton {

// Returns "prefill", "decode" or "both"; "unknown" for a role that this build does not know.
const char* WorkerRoleName(v1::WorkerRole role);

}  // namespace baton
