// Says why no worker of a fleet takes a chunked prompt.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "routing/routing_policy.h"

namespace baton {

// OK if a decode worker takes the prompt, or if there is none at all: then the policy says so. Also
// OK if workers that take it are unusable for now. Otherwise FailedPrecondition with the reason of
// a worker that refuses it, or that no worker supports chunks. The same if the placement demands a
// prefill worker, and no two workers hand chunked prompts over.
//
// For an answer that is resumed, which one worker had taken, the error is Unavailable.
absl::Status CheckTaken(const RoutingInput& input, std::span<const WorkerRecord> workers);

}  // namespace baton
