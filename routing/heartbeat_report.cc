#include "routing/heartbeat_report.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kMostCounted = 1 << 30;
constexpr int32_t kMostTokensPerBlock = 1 << 20;
constexpr int64_t kMostBytesPerBlock = int64_t{1} << 40;
constexpr int64_t kMostKvGroups = 64;
constexpr int32_t kMostRouters = 1024;
constexpr double kMostTokensPerSecond = 1e9;

int32_t Counted(int64_t count) {
  return static_cast<int32_t>(std::clamp<int64_t>(count, 0, kMostCounted));
}

}  // namespace

std::string FingerprintText(const HeartbeatFingerprint& fingerprint) {
  return absl::StrCat("model ", fingerprint.model, ", KV type ", fingerprint.kv_type, ", numerics ",
                      fingerprint.numerics, ", ", fingerprint.layers, " layers, ",
                      fingerprint.kv_heads, " KV heads of ", fingerprint.head_dim, ", RoPE ",
                      fingerprint.rope);
}

WorkerReport ReportOf(Heartbeat heartbeat) {
  WorkerReport out;
  out.id = std::move(heartbeat.id);
  out.address = std::move(heartbeat.address);
  out.role = heartbeat.role;
  out.changes_role = heartbeat.changes_role;
  out.epoch = heartbeat.epoch;
  out.model_name = heartbeat.model_name.substr(0, WorkerRegistry::kMaxNameBytes);
  out.fingerprint = FingerprintText(heartbeat.fingerprint);
  out.model = std::move(heartbeat.fingerprint.model);
  out.backend = std::move(heartbeat.backend);
  out.protocol = heartbeat.protocol;
  out.pool_layout = std::move(heartbeat.layout);
  out.kv_groups = static_cast<int32_t>(std::clamp<int64_t>(heartbeat.kv_groups, 1, kMostKvGroups));
  out.draining = heartbeat.draining;
  out.queued = Counted(int64_t{heartbeat.waiting} + heartbeat.running + heartbeat.waiting_for_kv);
  out.waiting = std::min(out.queued, Counted(heartbeat.waiting));
  if (heartbeat.prompt_tokens_left) {
    out.prompt_tokens_left = Counted(*heartbeat.prompt_tokens_left);
  }
  out.routers = std::clamp(heartbeat.routers, 1, kMostRouters);
  out.router_place = std::clamp(heartbeat.router_place, 0, out.routers - 1);
  // A pool that shrank must still give up its retiring blocks.
  out.available_blocks =
      Counted(int64_t{heartbeat.free_blocks} + heartbeat.cached_blocks - heartbeat.retiring_blocks);
  out.prefix_cache = heartbeat.prefix_cache;
  out.block_size = std::clamp(heartbeat.block_size, 1, kMostTokensPerBlock);
  out.pool_tokens = int64_t{std::max(0, heartbeat.limit_blocks)} * out.block_size;
  out.paged = heartbeat.paged;
  out.context_length = std::max(0, heartbeat.context_length);
  out.max_running = std::max(0, heartbeat.max_running);
  out.min_prefix_tokens = Counted(heartbeat.min_prefix_tokens);
  out.kv_bytes_per_token =
      std::clamp<int64_t>(heartbeat.bytes_per_block, 0, kMostBytesPerBlock) / out.block_size;
  const double tokens_per_s = heartbeat.decode_tokens_per_s;  // may be NaN
  out.decode_tokens_per_s = tokens_per_s > 0 ? std::min(tokens_per_s, kMostTokensPerSecond) : 0;
  if (heartbeat.chunks) {
    out.chunks = std::make_shared<const PromptChunkSupport>(*std::move(heartbeat.chunks));
  }
  return out;
}

}  // namespace baton
