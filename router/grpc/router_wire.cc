#include "router/grpc/router_wire.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/request_check.h"
#include "common/status_macros.h"
#include "routing/heartbeat_report.h"
#include "rpc/chunked_prompt_wire.h"
#include "rpc/sampling_wire.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr size_t kMaxHeartbeatBytes = size_t{1} << 16;

HeartbeatFingerprint FingerprintFromWire(const v1::KvFingerprint& wire) {
  return {.model = wire.model(),
          .kv_type = wire.kv_type(),
          .numerics = wire.numerics().empty() ? absl::StrCat("r", wire.numerics_revision())
                                              : wire.numerics(),
          .layers = wire.layers(),
          .kv_heads = wire.kv_heads(),
          .head_dim = wire.head_dim(),
          .rope = wire.rope()};
}

ProtocolRange ProtocolFromWire(const v1::KvFingerprint& wire) {
  if (wire.oldest_protocol_version() == 0) return ImpliedRange(wire.protocol_version());
  return {.oldest = wire.oldest_protocol_version(), .newest = wire.protocol_version()};
}

absl::StatusOr<WorkerRole> RoleFromWire(v1::WorkerRole wire, const char* field) {
  switch (wire) {
    case v1::WORKER_ROLE_PREFILL:
      return WorkerRole::kPrefill;
    case v1::WORKER_ROLE_DECODE:
      return WorkerRole::kDecode;
    case v1::WORKER_ROLE_BOTH:
      return WorkerRole::kBoth;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(field, " is ", static_cast<int>(wire), "; a worker's role is 1 to 3"));
  }
}

std::optional<PromptChunkSupport> ChunksFromWire(const v1::WorkerStatus& wire) {
  if (!wire.has_prompt_chunks()) return std::nullopt;
  return ChunkSupportFromWire(wire.prompt_chunks());
}

template <typename Value>
std::optional<Value> If(bool present, Value value) {
  return present ? std::optional<Value>(value) : std::nullopt;
}

}  // namespace

absl::StatusOr<WorkerReport> ReportFromWire(const v1::HeartbeatRequest& wire) {
  // Limits the size, because the router keeps several copies and copies often.
  if (const size_t bytes = wire.ByteSizeLong(); bytes > kMaxHeartbeatBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the heartbeat has ", bytes, " bytes; at most ",
                                                   kMaxHeartbeatBytes, " are allowed"));
  }
  const v1::WorkerStatus& status = wire.status();
  const v1::PoolStatus& pool = status.pool();
  const bool changes_role = wire.current_role() != v1::WORKER_ROLE_UNSPECIFIED;
  ASSIGN_OR_RETURN(const WorkerRole role, changes_role
                                              ? RoleFromWire(wire.current_role(), "current_role")
                                              : RoleFromWire(status.role(), "status.role"));
  return ReportOf(
      {.id = status.worker_id(),
       .address = status.address(),
       .role = role,
       .changes_role = changes_role,
       .epoch = Epoch(status.epoch()),
       .model_name = status.model_name(),
       .draining = status.draining(),
       .fingerprint = FingerprintFromWire(wire.fingerprint()),
       .backend = wire.fingerprint().backend(),
       .layout = wire.fingerprint().layout(),
       .protocol = ProtocolFromWire(wire.fingerprint()),
       .waiting = status.waiting(),
       .running = status.running(),
       .waiting_for_kv = status.waiting_for_kv(),
       .prompt_tokens_left = If(status.has_prompt_tokens_left(), status.prompt_tokens_left()),
       .routers = wire.routers(),
       .router_place = wire.router_place(),
       .block_size = pool.block_size(),
       .free_blocks = pool.free_blocks(),
       .cached_blocks = pool.cached_blocks(),
       .retiring_blocks = pool.retiring_blocks(),
       .limit_blocks = pool.limit_blocks(),
       .bytes_per_block = pool.bytes_per_block(),
       .kv_groups = pool.groups_size(),
       .paged = pool.paged(),
       .prefix_cache = !pool.has_prefix_cache() || pool.prefix_cache(),
       .min_prefix_tokens = pool.min_prefix_tokens(),
       .context_length = status.context_length(),
       .max_running = status.max_running(),
       .decode_tokens_per_s = status.decode_tokens_per_second(),
       .chunks = ChunksFromWire(status)});
}

ModelDescription ModelFromWire(v1::TokenizerDescription&& wire) {
  ModelDescription out;
  out.name = wire.model_name();
  out.architecture = wire.architecture();
  out.fingerprint = wire.model_fingerprint();
  out.context_length = wire.context_length();
  out.layers = wire.layers();
  out.chat_template = wire.chat_template();
  out.sampling = SamplingDefaultsFromWire(wire.recommended_sampling());
  TokenizerSpec& spec = out.tokenizer;
  spec.model = wire.tokenizer_model();
  spec.pre = wire.pre_tokenizer();
  spec.tokens.assign(std::make_move_iterator(wire.mutable_tokens()->begin()),
                     std::make_move_iterator(wire.mutable_tokens()->end()));
  spec.token_types.assign(wire.token_types().begin(), wire.token_types().end());
  spec.merges.assign(std::make_move_iterator(wire.mutable_merges()->begin()),
                     std::make_move_iterator(wire.mutable_merges()->end()));
  spec.bos = If(wire.has_bos_id(), wire.bos_id());
  spec.eos = If(wire.has_eos_id(), wire.eos_id());
  spec.eot = If(wire.has_eot_id(), wire.eot_id());
  spec.add_bos = wire.add_bos();
  spec.add_eos = wire.add_eos();
  return out;
}

absl::StatusOr<Placement> PlacementFromWire(v1::PrefillPlacement wire) {
  switch (wire) {
    case v1::PREFILL_PLACEMENT_UNSPECIFIED:
      return Placement::kAutomatic;
    case v1::PREFILL_PLACEMENT_REMOTE:
      return Placement::kRemote;
    case v1::PREFILL_PLACEMENT_LOCAL:
      return Placement::kLocal;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("placement is ", static_cast<int>(wire), "; 0 to 2 are allowed"));
  }
}

v1::IndexStatus IndexStatusToWire(const FleetIndexStatus& status, size_t predicted_units,
                                  const std::vector<WorkerRecord>& workers) {
  v1::IndexStatus out;
  out.set_units(static_cast<int64_t>(status.units));
  out.set_memberships(static_cast<int64_t>(status.memberships));
  out.set_max_units(static_cast<int64_t>(status.max_units));
  out.set_refused_units(static_cast<int64_t>(status.refused_units));
  out.set_bytes(static_cast<int64_t>(status.bytes));
  out.set_predicted_units(static_cast<int64_t>(predicted_units));
  for (const FollowedWorker& followed : status.workers) {
    const auto worker =
        std::find_if(workers.begin(), workers.end(),
                     [&](const WorkerRecord& record) { return record.number == followed.worker; });
    if (worker == workers.end()) continue;
    v1::IndexedWorkerStatus& shown = *out.add_workers();
    shown.set_worker_id(worker->report.id);
    shown.set_epoch(followed.epoch.value());
    shown.set_units(static_cast<int64_t>(followed.units));
    shown.set_followed(followed.followed);
    shown.set_sequence(followed.sequence);
    shown.set_gaps(followed.gaps);
    shown.set_snapshots(followed.snapshots);
    shown.set_trouble(ReplaceInvalidUtf8(followed.trouble));
  }
  return out;
}

v1::TenantStatus TenantToWire(const TenantUse& use) {
  v1::TenantStatus out;
  out.set_tenant(ReplaceInvalidUtf8(use.tenant));
  out.set_running(use.running);
  out.set_waiting(use.waiting);
  out.set_requests(use.requests);
  out.set_refused(use.refused);
  out.set_tokens(use.tokens);
  out.set_weight(use.limits.weight);
  out.set_requests_per_minute(use.limits.requests_per_minute);
  out.set_tokens_per_minute(use.limits.tokens_per_minute);
  out.set_concurrent_requests(use.limits.concurrent_requests);
  if (use.limits.max_priority != TenantLimits().max_priority) {
    out.set_max_priority(use.limits.max_priority);
  }
  out.set_kv_share(use.limits.kv_share);
  return out;
}

absl::StatusOr<std::string> TextFromWire(const Tokenizer& tokenizer,
                                         const v1::DetokenizeRequest& wire) {
  RETURN_IF_ERROR(CheckCount("ids", wire.ids_size(), kMaxDetokenizeIds));
  int64_t bytes = 0;
  for (const TokenId id : wire.ids())
    bytes += static_cast<int64_t>(tokenizer.TokenBytes(id).size());
  RETURN_IF_ERROR(CheckCount("the text", bytes, kMaxDetokenizedBytes, "bytes"));
  const std::span<const TokenId> ids(wire.ids().data(), static_cast<size_t>(wire.ids_size()));
  ASSIGN_OR_RETURN(std::string text, tokenizer.DecodeText(ids, {.include_control = true}));
  // Checks again: U+FFFD may be longer than the bytes that it replaces.
  RETURN_IF_ERROR(
      CheckCount("the text", static_cast<int64_t>(text.size()), kMaxDetokenizedBytes, "bytes"));
  return text;
}

}  // namespace baton
