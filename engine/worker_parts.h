// Objects that all state machines of a worker share.
#pragma once

#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/engine_metrics.h"
#include "kvtransfer/transport.h"
#include "scheduler/scheduler.h"
#include "text/tokenizer.h"

namespace baton {

class PartReceives;
class PartSends;
class PromptParts;

// All must outlive the machines.
struct WorkerParts {
  KvCacheManager* cache = nullptr;
  Scheduler* scheduler = nullptr;
  KvTransport* transport = nullptr;  // null: nothing is sent or received
  const Tokenizer* tokenizer = nullptr;
  const Clock* clock = nullptr;
  // Null: chunked prompts are refused.
  PromptParts* prompt_parts = nullptr;
  PartReceives* part_receives = nullptr;  // not null if the two above are not
  PartSends* part_sends = nullptr;        // the same
  EngineMetrics metrics = EngineMetrics();
};

}  // namespace baton
