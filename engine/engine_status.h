// The status that an engine reports (EngineMachines::Status).
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/chunk_cache.h"
#include "cache/kv_cache_manager.h"
#include "cache/sleeping_chunks.h"
#include "common/prompt_chunk_support.h"
#include "engine/kv_group_status.h"
#include "engine/pool_size.h"
#include "kvtransfer/moved_kv_bytes.h"

namespace baton {

struct EngineStatus {
  KvCacheStats cache;
  ChunkCacheStats chunk_cache;
  SleepingChunkStats sleeping_chunks = {};
  std::shared_ptr<const PromptChunkSupport> prompt_chunks;  // null: takes no chunked prompts
  int32_t block_size = 0;
  int32_t context_length = 0;
  int32_t max_running = 0;
  int64_t bytes_per_block = 0;
  std::string layout;
  std::string kv_type;
  bool paged = true;
  bool prefix_cache = true;
  int32_t min_prefix_tokens = 0;
  PoolSize pool;  // `before` equals `limit`; sizes outside `groups` are the full-attention group's
  std::vector<KvGroupStatus> groups;
  int32_t waiting = 0;
  int32_t running = 0;
  int32_t waiting_for_kv = 0;
  int32_t active_transfers = 0;
  int64_t steps = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t preemptions = 0;
  int64_t requests = 0;
  int64_t failures = 0;
  // Bytes of KV that transfers have copied between a GPU and host memory; 0 for a pool on the host.
  int64_t kv_bytes_through_host = 0;
  MovedKvBytes::Totals moved_kv;  // by transfers, since the start
  // Tokens that are known and not computed yet, without sequences that wait for KV. At most 100 ms
  // old.
  int64_t backlog_tokens = 0;
  int64_t prompt_tokens_left = 0;  // Scheduler::PromptTokensLeft; as old
  int64_t backlog_us = 0;          // expected time to compute them; 0 before the first prompt
  std::string conservation_error;  // of IdleIntegrityCheck; empty: none found

  // The integrity check has failed: the worker accepts no more requests.
  bool MustDrain() const { return !conservation_error.empty(); }
};

}  // namespace baton
