// A request's latency ledger, for people.
//
// Thread safety: pure function.
#pragma once

#include <string>

#include "cli/jobs.h"

namespace baton {

// Several lines, each ending in a newline. Figures that the result's ledger lacks are left out.
std::string LedgerTable(const JobResult& result);

}  // namespace baton
