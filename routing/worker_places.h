// Gives the workers of a fleet places that all routers count in the same way, so that each router
// can prefer other workers (route_cost.h).
//
// Thread safety: pure function.
#pragma once

#include <cstddef>
#include <vector>

#include "routing/worker_registry.h"

namespace baton {

// A larger fleet has no places. A decision looks only at a part of it.
inline constexpr size_t kMostPlaced = 64;

// Sets WorkerRecord::place and `alike`: the worker's place among the usable workers of its role, by
// id, and the number of these. The number is 0 for a worker that is not usable, and in a larger
// fleet. Call it when a worker has become usable or unusable, or has changed its role.
void PlaceWorkers(std::vector<WorkerRecord>& workers);

}  // namespace baton
