// Formats a request's latency ledger as text.
//
// Thread safety: pure function.
#pragma once

#include <string>

#include "cli/jobs.h"

namespace baton {

// Returns several lines, each with a newline. Leaves out figures that the result's ledger does not
// have.
std::string LedgerTable(const JobResult& result);

}  // namespace baton
