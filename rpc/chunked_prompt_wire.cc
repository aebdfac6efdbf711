#include "rpc/chunked_prompt_wire.h"

#include <string>
#include <vector>

#include "common/request_bounds.h"
#include "common/request_check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "rpc/prompt_chunks_wire.h"

namespace baton {
namespace {

constexpr size_t kMaxRefusalBytes = 256;

v1::TokenIds IdsToWire(const std::vector<TokenId>& ids) {
  v1::TokenIds out;
  out.mutable_ids()->Add(ids.begin(), ids.end());
  return out;
}

absl::StatusOr<ChunkOptions> OptionsFromWire(const v1::ChunkedPrompt& wire) {
  ChunkOptions out;
  if (!wire.chunk_positions().empty()) {
    ASSIGN_OR_RETURN(out.positions, ParseChunkPositions(wire.chunk_positions()));
  }
  if (!wire.chunk_scope().empty()) {
    ASSIGN_OR_RETURN(out.scope, ParseChunkScope(wire.chunk_scope()));
  }
  if (!wire.chunk_repair().empty()) {
    ASSIGN_OR_RETURN(out.repair, ParseChunkRepair(wire.chunk_repair()));
  }
  return out;
}

}  // namespace

v1::ChunkedPrompt ChunkedPromptToWire(const ChunkedPrompt& prompt) {
  v1::ChunkedPrompt out;
  if (!prompt.system.empty()) *out.mutable_system() = IdsToWire(prompt.system);
  for (const std::vector<TokenId>& chunk : prompt.chunks) *out.add_chunks() = IdsToWire(chunk);
  *out.mutable_question() = IdsToWire(prompt.question);
  const ChunkOptions defaults;
  const ChunkOptions& options = prompt.options;
  if (options.positions != defaults.positions) {
    out.set_chunk_positions(std::string(ChunkPositionsName(options.positions)));
  }
  if (options.scope != defaults.scope) {
    out.set_chunk_scope(std::string(ChunkScopeName(options.scope)));
  }
  if (options.repair != defaults.repair) out.set_chunk_repair(ChunkRepairName(options.repair));
  return out;
}

absl::StatusOr<ChunkedPrompt> ChunkedPromptFromWire(const v1::ChunkedPrompt& wire,
                                                    int prompt_token_ids) {
  if (prompt_token_ids != 0) {
    return absl::InvalidArgumentError(
        StrCat("a request with a chunked prompt also has ", prompt_token_ids, " prompt_token_ids"));
  }
  RETURN_IF_ERROR(CheckChunkCount(wire.chunks_size()));
  int64_t tokens = int64_t{wire.system().ids_size()} + wire.question().ids_size();
  for (const v1::TokenIds& chunk : wire.chunks()) tokens += chunk.ids_size();
  RETURN_IF_ERROR(CheckCount("the prompt", tokens, kMaxPromptTokenIds, "tokens"));
  ChunkedPrompt out;
  ASSIGN_OR_RETURN(out.options, OptionsFromWire(wire));
  out.system = TokenIdsFromWire(wire.system());
  out.chunks.reserve(static_cast<size_t>(wire.chunks_size()));
  for (const v1::TokenIds& chunk : wire.chunks()) out.chunks.push_back(TokenIdsFromWire(chunk));
  out.question = TokenIdsFromWire(wire.question());
  return out;
}

v1::PromptChunkSupport ChunkSupportToWire(const PromptChunkSupport& support) {
  v1::PromptChunkSupport out;
  out.set_piece_tokens(support.piece_tokens);
  out.set_refusal(support.refusal);
  out.set_repairs_first(support.repairs_first);
  out.set_repairs_share(support.repairs_share);
  out.set_hands_over(support.hands_over);
  return out;
}

PromptChunkSupport ChunkSupportFromWire(const v1::PromptChunkSupport& wire) {
  return {.piece_tokens = wire.piece_tokens(),
          .refusal = wire.refusal().substr(0, kMaxRefusalBytes),
          .repairs_first = wire.repairs_first(),
          .repairs_share = wire.repairs_share(),
          .hands_over = wire.hands_over()};
}

}  // namespace baton
