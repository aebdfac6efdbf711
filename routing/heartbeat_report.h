// Converts a worker's heartbeat into the report that routing uses.
//
// Workers are not trusted: every number is clamped to its range. Fields that an older worker does
// not send have the default that is stated at the field.
//
// Pure: the router's gRPC edge fills the fields from the wire, the simulation from its engines.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/prompt_chunk_support.h"
#include "common/protocol_range.h"
#include "common/strong_int.h"
#include "routing/worker_registry.h"

namespace baton {

// Properties that all workers of a fleet must share so that their answers are equal bit for bit.
struct HeartbeatFingerprint {
  std::string model = {};
  std::string kv_type = {};
  std::string numerics = {};
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  std::string rope = {};
};

struct Heartbeat {
  std::string id = {};
  std::string address = {};
  WorkerRole role = WorkerRole::kDecode;
  bool changes_role = false;
  Epoch epoch{0};
  std::string model_name = {};
  bool draining = false;

  HeartbeatFingerprint fingerprint = {};
  std::string backend = {};
  std::string layout = {};
  ProtocolRange protocol = {};

  // Sequences.
  int32_t waiting = 0;
  int32_t running = 0;
  int32_t waiting_for_kv = 0;
  std::optional<int64_t> prompt_tokens_left = {};  // absent: an older worker
  int32_t routers = 0;                             // 0: an older worker; counts as 1
  int32_t router_place = 0;

  // The pool, in blocks of KV group 0.
  int32_t block_size = 0;
  int32_t free_blocks = 0;
  int32_t cached_blocks = 0;
  int32_t retiring_blocks = 0;
  int32_t limit_blocks = 0;
  int64_t bytes_per_block = 0;
  int64_t kv_groups = 0;  // 0: not reported; counts as 1
  bool paged = true;
  bool prefix_cache = true;
  int32_t min_prefix_tokens = 0;

  int32_t context_length = 0;
  int32_t max_running = 0;
  double decode_tokens_per_s = 0;
  std::optional<PromptChunkSupport> chunks = {};  // absent: the worker takes no chunked prompts
};

WorkerReport ReportOf(Heartbeat heartbeat);

// Describes a kind of workers: equal texts mean equal answers, bit for bit. Block size, layout,
// backend and protocol versions are not part of it; the heartbeat carries them separately.
std::string FingerprintText(const HeartbeatFingerprint& fingerprint);

}  // namespace baton
