// The fleet's status as a table for people.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "baton/v1/inference.pb.h"

namespace baton {

// "serving"; or why no new requests go there: "draining", "silent", "unreachable", "damaged" (a
// recount of its blocks failed).
const char* WorkerState(const v1::WorkerStatus& worker);

// The router, a row for each worker, and refused workers; with `index`, what the router knows of
// the workers' prefix caches. Several lines.
std::string StatusTable(const v1::GetStatusResponse& status, bool index);

// What the columns mean, for the help.
extern const char kStatusColumnsHelp[];

}  // namespace baton
