// Puts decode rows that share the blocks of their first slots next to each other in a step, because
// a runner compares only neighbours (model/shared_prefixes.h).
//
// Thread safety: engine thread only.
#pragma once

#include "cache/kv_cache_manager.h"
#include "scheduler/scheduler.h"

namespace baton {

// Changes the order of the chunks at the front of the plan that have one token. A row moves behind
// the first row that shares blocks with it, in multiples of kSharedSlots slots. All other rows keep
// their order. So the order stays the same from step to step, and changes no result.
void PutSharedPrefixesTogether(const KvCacheManager& cache, SchedulerOutput& plan);

}  // namespace baton
