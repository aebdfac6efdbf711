// Whether a router's index says what the workers' caches hold: hints may be late, but where nothing
// happens any more they are right, and nothing is told again.
#pragma once

#include <optional>
#include <span>

#include "tests/sim/oracle.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_router.h"
#include "tests/sim/sim_worker.h"

namespace baton {

// Every worker that can tell is followed up to its last batch. Cheap.
bool IsIndexCurrent(const SimRouter& router, std::span<SimWorker* const> workers);
// REQUIRES: rest.
std::optional<Violation> CheckIndex(const SimRouter& router, std::span<SimWorker* const> workers,
                                    std::span<const ScenarioRequest> requests);
// Snapshots taken in, of all workers that are there.
int64_t SnapshotsTaken(const SimRouter& router);

}  // namespace baton
