// What `inspect` shows of a worker's live requests: their sequences, and the blocks of each.
//
// Thread safety: belongs to the engine thread.
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
  // Of KV groups 1, 2, ...: as `blocks`, with -1 where there is none.
  std::vector<std::vector<int32_t>> window_blocks = {};
};

// By handle. A request that has no sequence any more delivers its KV; one that has none yet waits
// for the choice that computes its prompt.
std::vector<SequenceInspection> InspectSequences(const WorkerCore& core, const Scheduler& scheduler,
                                                 const KvCacheManager& cache);

}  // namespace baton
