#include "rpc/prompt_chunks_wire.h"

#include <variant>

#include "common/status_macros.h"

namespace baton {
namespace {

void AddSize(const v1::PromptPart& wire, PartSizes& sizes) {
  sizes.bytes += static_cast<int64_t>(wire.text().size());
  sizes.token_ids += wire.token_ids().ids_size();
}

}  // namespace

std::vector<TokenId> TokenIdsFromWire(const v1::TokenIds& wire) {
  return {wire.ids().begin(), wire.ids().end()};
}

PromptPart PartFromWire(const v1::PromptPart& wire) {
  if (!wire.has_token_ids()) return wire.text();
  return TokenIdsFromWire(wire.token_ids());
}

v1::PromptPart PartToWire(const PromptPart& part) {
  v1::PromptPart out;
  if (const auto* text = std::get_if<std::string>(&part)) {
    out.set_text(*text);
  } else {
    const auto& ids = std::get<std::vector<TokenId>>(part);
    out.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  return out;
}

std::vector<PromptPart> PartListFromWire(
    const google::protobuf::RepeatedPtrField<v1::PromptPart>& wire) {
  std::vector<PromptPart> out;
  out.reserve(static_cast<size_t>(wire.size()));
  for (const v1::PromptPart& part : wire) out.push_back(PartFromWire(part));
  return out;
}

ChunkedText PartsFromWire(const v1::PromptParts& wire) {
  return {.system = PartFromWire(wire.system()),
          .chunks = PartListFromWire(wire.chunks()),
          .question = PartFromWire(wire.question())};
}

v1::PromptParts PartsToWire(const ChunkedText& parts) {
  v1::PromptParts out;
  *out.mutable_system() = PartToWire(parts.system);
  for (const PromptPart& chunk : parts.chunks) *out.add_chunks() = PartToWire(chunk);
  *out.mutable_question() = PartToWire(parts.question);
  return out;
}

PartSizes PartSizesOf(const v1::GenerateRequest& wire) {
  if (wire.has_messages()) return PartSizesOf(wire.messages());
  PartSizes out;
  out.chunks = wire.parts().chunks_size();
  AddSize(wire.parts().system(), out);
  for (const v1::PromptPart& chunk : wire.parts().chunks()) AddSize(chunk, out);
  AddSize(wire.parts().question(), out);
  return out;
}

PartSizes PartSizesOf(const v1::Messages& wire) {
  PartSizes out;
  for (const v1::ChatMessage& message : wire.messages()) {
    out.chunks += message.chunks_size();
    for (const v1::PromptPart& chunk : message.chunks()) AddSize(chunk, out);
  }
  return out;
}

absl::StatusOr<ChunkOptions> ChunkOptionsFromWire(const v1::GenerateRequest& wire) {
  ChunkOptions out;
  if (wire.has_chunk_positions()) {
    ASSIGN_OR_RETURN(out.positions, ParseChunkPositions(wire.chunk_positions()));
  }
  if (wire.has_chunk_scope()) {
    ASSIGN_OR_RETURN(out.scope, ParseChunkScope(wire.chunk_scope()));
  }
  if (wire.has_chunk_repair()) {
    ASSIGN_OR_RETURN(out.repair, ParseChunkRepair(wire.chunk_repair()));
  }
  return out;
}

void ChunkOptionsToWire(const ChunkOptions& options, v1::GenerateRequest& wire) {
  const ChunkOptions defaults;
  if (options.positions != defaults.positions) {
    wire.set_chunk_positions(std::string(ChunkPositionsName(options.positions)));
  }
  if (options.scope != defaults.scope) {
    wire.set_chunk_scope(std::string(ChunkScopeName(options.scope)));
  }
  if (options.repair != defaults.repair) {
    wire.set_chunk_repair(ChunkRepairName(options.repair));
  }
}

}  // namespace baton
