// Cached prompt chunks of a worker as a message, for operators.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>

#include "baton/v1/worker.pb.h"
#include "engine/engine.h"

namespace baton {

v1::ListChunksResponse ChunksToWire(const std::string& worker_id,
                                    std::span<const ChunkCache::EntryInfo> chunks,
                                    const EngineStatus& status);

}  // namespace baton
