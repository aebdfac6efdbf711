// A worker's cached prompt chunks, as a table or as JSON.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "baton/v1/worker.pb.h"

namespace baton {

// Returns a row for each chunk and a line with the totals.
std::string ChunkTable(const v1::ListChunksResponse& list);

// Returns one JSON object and a newline:
// {"worker", "budget_blocks", "used_blocks", "bytes_per_block", "chunks": [{"key", "tokens",
// "blocks", "position", "references", "uses", "age_ms", "idle_ms"}]}.
std::string ChunksAsJson(const v1::ListChunksResponse& list);

// Meaning of the columns, for the help.
extern const char kChunkColumnsHelp[];

}  // namespace baton
