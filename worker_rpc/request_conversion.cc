#include "worker_rpc/request_conversion.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/request_check.h"
#include "common/status_macros.h"
#include "rpc/chunked_prompt_wire.h"

namespace baton {
namespace {

std::vector<TokenId> TokenIdsFromWire(const google::protobuf::RepeatedField<int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

GeneratedPart GeneratedFromWire(const v1::GeneratedPart& wire) {
  return {.tokens = TokenIdsFromWire(wire.token_ids()),
          .logits_hash = wire.logits_hash(),
          .finished = wire.finished()};
}

// Routers without support for several choices leave the field out.
int32_t ChoicesFromWire(int32_t n) { return n == 0 ? 1 : n; }

// `token_ids`: number of tokens in the request's ordinary prompt or prefix.
template <typename WireRequest>
absl::StatusOr<std::optional<ChunkedPrompt>> ChunkedFromWire(const WireRequest& wire,
                                                             int token_ids) {
  if (!wire.has_chunked()) return std::nullopt;
  return ChunkedPromptFromWire(wire.chunked(), token_ids);
}

template <typename WireRequest>
absl::StatusOr<CacheOwner> OwnerFromWire(const WireRequest& wire) {
  const double share = wire.cache_owner().share();
  if (share >= 0 && share <= 1) return CacheOwner{.id = wire.cache_owner().id(), .share = share};
  return absl::InvalidArgumentError(
      absl::StrCat("cache_owner.share is ", share, "; 0 to 1 is allowed"));
}

// Prompt tokens that count against the context before the prompt is converted. The parts of a
// chunked prompt may exceed the context together.
template <typename WireRequest>
int64_t PromptThatCounts(const WireRequest& wire) {
  return wire.has_chunked() ? 0 : wire.prompt_token_ids_size();
}

}  // namespace

absl::Status CheckSize(const v1::DecodeRequest& wire, int32_t context_length) {
  // Check the count before any loop over the parts.
  RETURN_IF_ERROR(CheckCount("generated", wire.generated_size(), kMaxChoices, "parts"));
  const int64_t prompt = PromptThatCounts(wire);
  if (!wire.has_chunked()) RETURN_IF_ERROR(CheckPromptSize(prompt, 0, context_length));
  for (const v1::GeneratedPart& part : wire.generated()) {
    RETURN_IF_ERROR(CheckPromptSize(prompt, part.token_ids_size(), context_length));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const v1::PrefillRequest& wire, int32_t context_length) {
  return CheckPromptSize(PromptThatCounts(wire), wire.generated().token_ids_size(), context_length);
}

absl::Status CheckPromptSize(int64_t prompt_tokens, int64_t generated_tokens,
                             int32_t context_length) {
  if (prompt_tokens >= context_length) return CheckPromptTokens(prompt_tokens, context_length);
  if (generated_tokens <= context_length - prompt_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a prompt of ", prompt_tokens, " tokens and ", generated_tokens,
                   " generated tokens exceed the context of ", context_length));
}

absl::StatusOr<GenerateRequest> GenerateRequestFromWire(v1::DecodeRequest&& wire,
                                                        SamplingParams sampling) {
  GenerateRequest out;
  ASSIGN_OR_RETURN(out.cache_owner, OwnerFromWire(wire));
  ASSIGN_OR_RETURN(out.chunked, ChunkedFromWire(wire, wire.prompt_token_ids_size()));
  out.prompt = out.chunked ? FlatTokens(*out.chunked) : TokenIdsFromWire(wire.prompt_token_ids());
  out.request_id = std::move(*wire.mutable_request_id());
  out.n = ChoicesFromWire(wire.n());
  for (const v1::GeneratedPart& part : wire.generated()) {
    out.generated.push_back(GeneratedFromWire(part));
  }
  out.sampling = std::move(sampling);
  out.cache_namespace = CacheNamespace(wire.cache_namespace(), wire.cache_namespace_high());
  out.priority = wire.priority();
  out.remote_prefill = wire.remote_prefill();
  out.queues_for_kv = wire.queues_for_kv();
  out.timeout_ms = wire.timeout_ms();
  return out;
}

absl::StatusOr<PrefillRequest> PrefillRequestFromWire(v1::PrefillRequest&& wire,
                                                      SamplingParams sampling) {
  PrefillRequest out;
  ASSIGN_OR_RETURN(out.cache_owner, OwnerFromWire(wire));
  ASSIGN_OR_RETURN(out.chunked, ChunkedFromWire(wire, wire.prompt_token_ids_size()));
  ASSIGN_OR_RETURN(out.ticket, TicketFromWire(wire.ticket()));
  out.request_id = std::move(*wire.mutable_request_id());
  out.prompt = out.chunked ? FlatTokens(*out.chunked) : TokenIdsFromWire(wire.prompt_token_ids());
  out.n = ChoicesFromWire(wire.n());
  out.generated = GeneratedFromWire(wire.generated());
  out.sampling = std::move(sampling);
  out.cache_namespace = CacheNamespace(wire.cache_namespace(), wire.cache_namespace_high());
  out.priority = wire.priority();
  return out;
}

absl::StatusOr<PullRequest> PullRequestFromWire(const v1::PullPrefixRequest& wire) {
  PullRequest out;
  ASSIGN_OR_RETURN(out.cache_owner, OwnerFromWire(wire));
  ASSIGN_OR_RETURN(out.chunked, ChunkedFromWire(wire, wire.token_ids_size()));
  out.tokens = TokenIdsFromWire(wire.token_ids());
  out.cache_namespace = CacheNamespace(wire.cache_namespace(), wire.cache_namespace_high());
  out.timeout_ms = wire.timeout_ms();
  out.priority = wire.priority();
  return out;
}

absl::StatusOr<SendPrefixRequest> SendPrefixRequestFromWire(const v1::SendPrefixRequest& wire) {
  SendPrefixRequest out;
  ASSIGN_OR_RETURN(out.chunked, ChunkedFromWire(wire, wire.token_ids_size()));
  ASSIGN_OR_RETURN(out.ticket, TicketFromWire(wire.ticket().ticket()));
  out.tokens = TokenIdsFromWire(wire.token_ids());
  out.cache_namespace = CacheNamespace(wire.cache_namespace(), wire.cache_namespace_high());
  out.priority = wire.priority();
  return out;
}

absl::StatusOr<TransferTicket> TicketFromWire(const v1::TransferTicket& wire) {
  RETURN_IF_ERROR(CheckCount("ticket.parts", wire.parts_size(), kMaxTicketParts));
  TransferTicket out;
  out.transfer_id = wire.transfer_id();
  out.receiver_epoch = Epoch(wire.receiver_epoch());
  out.address = wire.address();
  out.first_block = wire.first_block();
  out.block_count = wire.block_count();
  out.block_size = wire.block_size();
  out.window_first_blocks.assign(wire.window_first_blocks().begin(),
                                 wire.window_first_blocks().end());
  out.timeout_ms = wire.timeout_ms();
  out.piece_tokens = wire.piece_tokens();
  out.parts.reserve(static_cast<size_t>(wire.parts_size()));
  for (const v1::PartTicket& part : wire.parts()) {
    out.parts.push_back({.part = part.part(),
                         .transfer_id = part.transfer_id(),
                         .first_block = part.first_block(),
                         .block_count = part.block_count()});
  }
  return out;
}

v1::TransferTicket TicketToWire(const TransferTicket& ticket) {
  v1::TransferTicket out;
  out.set_transfer_id(ticket.transfer_id);
  out.set_receiver_epoch(ticket.receiver_epoch.value());
  out.set_address(ticket.address);
  out.set_first_block(ticket.first_block);
  out.set_block_count(ticket.block_count);
  out.set_block_size(ticket.block_size);
  out.mutable_window_first_blocks()->Assign(ticket.window_first_blocks.begin(),
                                            ticket.window_first_blocks.end());
  out.set_timeout_ms(ticket.timeout_ms);
  out.set_piece_tokens(ticket.piece_tokens);
  for (const PartTicket& part : ticket.parts) {
    v1::PartTicket& wire = *out.add_parts();
    wire.set_part(part.part);
    wire.set_transfer_id(part.transfer_id);
    wire.set_first_block(part.first_block);
    wire.set_block_count(part.block_count);
  }
  return out;
}

}  // namespace baton
