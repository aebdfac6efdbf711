#include "router/grpc/router_wire.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "rpc/sampling_wire.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr size_t kMaxHeartbeatBytes = size_t{1} << 16;

// Describes a kind of workers: equal texts mean equal answers, bit for bit. Pool layout, backend
// and protocol versions are not part of it; the heartbeat carries them separately.
std::string FingerprintText(const v1::KvFingerprint& wire) {
  const std::string numerics =
      wire.numerics().empty() ? absl::StrCat("r", wire.numerics_revision()) : wire.numerics();
  return absl::StrCat("model ", wire.model(), ", KV type ", wire.kv_type(), ", numerics ", numerics,
                      ", ", wire.layers(), " layers, ", wire.kv_heads(), " KV heads of ",
                      wire.head_dim(), ", RoPE ", wire.rope());
}

ProtocolRange ProtocolFromWire(const v1::KvFingerprint& wire) {
  if (wire.oldest_protocol_version() == 0) return ImpliedRange(wire.protocol_version());
  return {.oldest = wire.oldest_protocol_version(), .newest = wire.protocol_version()};
}

absl::StatusOr<WorkerRole> RoleFromWire(v1::WorkerRole wire) {
  switch (wire) {
    case v1::WORKER_ROLE_PREFILL:
      return WorkerRole::kPrefill;
    case v1::WORKER_ROLE_DECODE:
      return WorkerRole::kDecode;
    case v1::WORKER_ROLE_BOTH:
      return WorkerRole::kBoth;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("status.role is ", static_cast<int>(wire), "; a worker's role is 1–3"));
  }
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm out = {};
  localtime_r(&now, &out);
  return out;
}

int64_t BytesOf(const v1::Messages& wire) {
  int64_t bytes = 0;
  for (const v1::ChatMessage& message : wire.messages()) {
    bytes += static_cast<int64_t>(message.role().size() + message.content().size());
  }
  return bytes;
}

std::span<const TokenId> IdsOf(const v1::TokenIds& wire) {
  return {wire.ids().data(), static_cast<size_t>(wire.ids_size())};
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
  WorkerReport out;
  ASSIGN_OR_RETURN(out.role, RoleFromWire(status.role()));
  out.id = status.worker_id();
  out.address = status.address();
  out.epoch = Epoch(status.epoch());
  out.model = wire.fingerprint().model();
  out.model_name = status.model_name().substr(0, WorkerRegistry::kMaxNameBytes);
  out.fingerprint = FingerprintText(wire.fingerprint());
  out.backend = wire.fingerprint().backend();
  out.protocol = ProtocolFromWire(wire.fingerprint());
  out.pool_layout = wire.fingerprint().layout();
  out.draining = status.draining();
  const int64_t queued = int64_t{status.waiting()} + status.running() + status.waiting_for_kv();
  out.queued = static_cast<int32_t>(std::clamp<int64_t>(queued, 0, 1 << 30));
  // A pool that shrank must still give up its retiring blocks.
  const int64_t available = int64_t{status.pool().free_blocks()} + status.pool().cached_blocks() -
                            status.pool().retiring_blocks();
  out.available_blocks = static_cast<int32_t>(std::clamp<int64_t>(available, 0, 1 << 30));
  out.prefix_cache = !status.pool().has_prefix_cache() || status.pool().prefix_cache();
  out.block_size = std::clamp(status.pool().block_size(), 1, 1 << 20);
  out.pool_tokens = int64_t{std::max(0, status.pool().limit_blocks())} * out.block_size;
  out.paged = status.pool().paged();
  out.context_length = std::max(0, status.context_length());
  out.max_running = std::max(0, status.max_running());
  out.min_prefix_tokens = std::clamp(status.pool().min_prefix_tokens(), 0, 1 << 30);
  constexpr int64_t kMostBytesPerBlock = int64_t{1} << 40;
  out.kv_bytes_per_token =
      std::clamp<int64_t>(status.pool().bytes_per_block(), 0, kMostBytesPerBlock) / out.block_size;
  return out;
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

int32_t ChoicesFromWire(const v1::GenerateRequest& wire) { return wire.has_n() ? wire.n() : 1; }

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
          absl::StrCat("placement is ", static_cast<int>(wire), "; 0–2 are allowed"));
  }
}

RequestLimits LimitsFor(const ServedModel& model, int64_t max_prompt_bytes) {
  return {.max_prompt_bytes = max_prompt_bytes,
          .context_length = model.description().context_length,
          .vocabulary = model.tokenizer().vocab_size(),
          .longest_token_bytes = model.tokenizer().longest_token_bytes()};
}

absl::StatusOr<std::vector<TokenId>> EncodeMessagesFromWire(const ServedModel& model,
                                                            const RequestLimits& limits,
                                                            const v1::Messages& wire) {
  RETURN_IF_ERROR(CheckMessages(wire.messages_size(), BytesOf(wire), limits));
  std::vector<ChatMessage> messages;
  messages.reserve(static_cast<size_t>(wire.messages_size()));
  for (const v1::ChatMessage& message : wire.messages()) {
    messages.push_back(
        {.role = message.role(), .content = message.content(), .name = std::nullopt});
  }
  const bool add_generation_prompt =
      wire.has_add_generation_prompt() ? wire.add_generation_prompt() : true;
  return model.encoder().EncodeMessages(messages, add_generation_prompt, LocalTime());
}

absl::StatusOr<std::vector<TokenId>> PromptFromWire(const ServedModel& model,
                                                    const RequestLimits& limits,
                                                    const v1::GenerateRequest& wire) {
  std::vector<TokenId> prompt;
  switch (wire.input_case()) {
    case v1::GenerateRequest::kPrompt:
      RETURN_IF_ERROR(CheckPromptBytes(static_cast<int64_t>(wire.prompt().size()), limits));
      prompt = model.encoder().EncodeText(wire.prompt());
      break;
    case v1::GenerateRequest::kMessages: {
      ASSIGN_OR_RETURN(prompt, EncodeMessagesFromWire(model, limits, wire.messages()));
      break;
    }
    case v1::GenerateRequest::kPromptTokenIds: {
      const std::span<const TokenId> ids = IdsOf(wire.prompt_token_ids());
      RETURN_IF_ERROR(CheckPromptTokens(static_cast<int64_t>(ids.size()), limits.context_length));
      RETURN_IF_ERROR(CheckTokenIds("prompt_token_ids", ids, limits.vocabulary));
      prompt.assign(ids.begin(), ids.end());
      break;
    }
    case v1::GenerateRequest::INPUT_NOT_SET:
      return absl::InvalidArgumentError("one of prompt, prompt_token_ids and messages must be set");
  }
  RETURN_IF_ERROR(CheckPromptTokens(static_cast<int64_t>(prompt.size()), limits.context_length));
  return prompt;
}

absl::Status CheckRequest(const v1::GenerateRequest& wire, const RequestLimits& limits) {
  RequestFields fields = {.request_id = wire.request_id(),
                          .session_id = wire.session_id(),
                          .tenant = wire.tenant(),
                          .cache_salt = wire.cache_salt(),
                          .priority = wire.priority(),
                          .n = ChoicesFromWire(wire),
                          .sampling = {},
                          .prompt = wire.prompt(),
                          .messages = wire.messages().messages_size(),
                          .message_bytes = BytesOf(wire.messages()),
                          .prompt_token_ids = std::nullopt};
  ASSIGN_OR_RETURN(fields.sampling, SamplingFromWire(wire.sampling()));
  if (wire.has_prompt_token_ids()) fields.prompt_token_ids = IdsOf(wire.prompt_token_ids());
  return CheckRequest(fields, limits);
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
