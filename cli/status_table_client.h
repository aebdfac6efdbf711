// The fleet's status as a table.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "baton/v1/inference.pb.h"

namespace baton {

// Returns "serving", or why the worker gets no new requests: "draining", "silent", "unreachable" or
// "damaged" (the integrity check of its blocks failed).
const char* WorkerState(const v1::WorkerStatus& worker);

// Returns lines for the router, a row for each worker, and lines for refused workers. With `index`,
// also shows what the router knows of the workers' prefix caches.
std::string StatusTable(const v1::GetStatusResponse& status, bool index);

// Returns a row for each tenant, and a line that explains an empty table.
std::string TenantRows(const v1::GetStatusResponse& status);

// Meaning of the columns, for the help.
extern const char kStatusColumnsHelp[];

}  // namespace baton
