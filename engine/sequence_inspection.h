// Snapshot of a worker's live requests for `inspect`: their sequences and the blocks of each.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/kv_cache_manager.h"

namespace baton {

class Scheduler;
class WorkerCore;

struct SequenceInspection {
  uint64_t sequence_id = 0;
  std::string request_id;
  std::string phase;
  int32_t tokens = 0;
  int32_t committed = 0;
  int32_t matched = 0;
  std::vector<int32_t> blocks;
  int32_t priority = 0;
  // As `blocks`, for KV groups 1, 2, ...; -1 where there is no block.
  std::vector<std::vector<int32_t>> window_blocks = {};
};

// Returns the live requests in order of their handles. A request without a sequence either still
// delivers its KV, or waits for the choice that computes its prompt.
std::vector<SequenceInspection> InspectSequences(const WorkerCore& core, const Scheduler& scheduler,
                                                 const KvCacheManager& cache);

}  // namespace baton
