// Objects that all state machines of a worker share.
#pragma once

#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "kvtransfer/transport.h"
#include "scheduler/scheduler.h"
#include "text/tokenizer.h"

namespace baton {

class PromptParts;

// All must outlive the machines.
struct WorkerParts {
  KvCacheManager* cache = nullptr;
  Scheduler* scheduler = nullptr;
  KvTransport* transport = nullptr;  // null: nothing is sent or received
  const Tokenizer* tokenizer = nullptr;
  const Clock* clock = nullptr;
  PromptParts* prompt_parts = nullptr;  // null: chunked prompts are refused
};

}  // namespace baton
