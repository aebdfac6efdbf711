// Checks that a router's index agrees with the workers' caches. The index may lag behind. At rest
// it must be correct, and workers must send no new snapshots.
#pragma once

#include <optional>
#include <span>

#include "tests/sim/oracle.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_router.h"
#include "tests/sim/sim_worker.h"

namespace baton {

// Returns true if the router has taken the last event batch of every worker that publishes events.
// Cheap.
bool IsIndexCurrent(const SimRouter& router, std::span<SimWorker* const> workers);
// REQUIRES: the cluster is at rest.
std::optional<Violation> CheckIndex(const SimRouter& router, std::span<SimWorker* const> workers,
                                    std::span<const ScenarioRequest> requests);
// Returns the number of snapshots that the router took from all current workers.
int64_t SnapshotsTaken(const SimRouter& router);

}  // namespace baton
