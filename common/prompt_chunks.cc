#include "common/prompt_chunks.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "common/printable_text.h"
#include "common/request_bounds.h"
#include "common/request_check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr size_t kShownBytes = 64;  // of a bad value
constexpr std::string_view kFirstPrefix = "first:";
constexpr std::string_view kSharePrefix = "share:";
constexpr size_t kShareDecimals = 6;

absl::Status BadName(std::string_view field, std::string_view name, std::string_view allowed) {
  return absl::InvalidArgumentError(
      StrCat(field, " is \"", Printable(name, kShownBytes), "\"; ", allowed, " is allowed"));
}

absl::Status BadRepair(std::string_view name) {
  return BadName("chunk_repair", name,
                 StrCat("none, first:K with K of 0 to ", kMaxPromptTokenIds,
                        ", or share:R with R of 0 to 1 and at most ", kShareDecimals, " decimals"));
}

bool IsDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns -1 for anything but a whole number of 0 to `most`.
int32_t ParseWhole(std::string_view text, int64_t most) {
  int64_t value = 0;
  if (!IsDigits(text)) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > most) return -1;
  return static_cast<int32_t>(value);
}

// Returns the share in millionths, or -1. The digits are read one by one, because a floating-point
// number would round.
int32_t ParseShare(std::string_view text) {
  const size_t point = text.find('.');
  const int32_t whole = ParseWhole(text.substr(0, point), 1);
  if (whole < 0) return -1;
  std::string decimals;
  if (point != std::string_view::npos) {
    decimals = text.substr(point + 1);
    if (decimals.size() > kShareDecimals || !IsDigits(decimals)) return -1;
  }
  decimals.resize(kShareDecimals, '0');
  const int32_t share = whole * ChunkRepair::kWhole + ParseWhole(decimals, ChunkRepair::kWhole - 1);
  return share <= ChunkRepair::kWhole ? share : -1;
}

std::string ShareText(int32_t millionths) {
  std::string decimals = StrCat(ChunkRepair::kWhole + millionths % ChunkRepair::kWhole).substr(1);
  decimals.erase(decimals.find_last_not_of('0') + 1);
  const std::string whole = StrCat(millionths / ChunkRepair::kWhole);
  return decimals.empty() ? whole : StrCat(whole, ".", decimals);
}

// Returns the name of the request's field that the part comes from.
std::string FieldName(size_t part, size_t chunks) {
  if (part == 0) return "system";
  return part > chunks ? "question" : StrCat("chunks[", part - 1, "]");
}

absl::Status EmptyPart(size_t part, size_t chunks, std::string_view unit) {
  return absl::InvalidArgumentError(StrCat(PartName(part, chunks), " has 0 ", unit,
                                           "; every part but the system part needs at least 1"));
}

absl::Status CheckNotEmpty(size_t part, size_t chunks, const PromptPart& given) {
  const bool text = std::holds_alternative<std::string>(given);
  const bool empty =
      text ? std::get<std::string>(given).empty() : std::get<std::vector<TokenId>>(given).empty();
  return empty ? EmptyPart(part, chunks, text ? "bytes" : "tokens") : absl::OkStatus();
}

absl::Status CheckPart(size_t part, size_t chunks, std::span<const TokenId> tokens,
                       int32_t vocabulary) {
  if (tokens.empty() && part > 0) return EmptyPart(part, chunks, "tokens");
  return CheckTokenIds(FieldName(part, chunks), tokens, vocabulary);
}

// `end`: the position behind the part's last token.
absl::Status CheckEnd(size_t part, size_t chunks, int64_t end, int32_t context_length) {
  if (end <= context_length) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(PartName(part, chunks), " reaches position ", end - 1,
                                           "; the context of ", context_length,
                                           " tokens ends at position ", context_length - 1));
}

absl::Status CheckPositions(const ChunkedPrompt& prompt, int32_t context_length) {
  const size_t chunks = prompt.chunks.size();
  const PartPositions begin = PositionsOf(prompt);
  RETURN_IF_ERROR(CheckEnd(0, chunks, static_cast<int64_t>(prompt.system.size()), context_length));
  for (size_t i = 0; i < chunks; ++i) {
    const int64_t end = begin.chunks[i] + static_cast<int64_t>(prompt.chunks[i].size());
    RETURN_IF_ERROR(CheckEnd(i + 1, chunks, end, context_length));
  }
  RETURN_IF_ERROR(CheckEnd(chunks + 1, chunks, begin.answer, context_length));
  if (begin.answer < context_length) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(PartName(chunks + 1, chunks), " reaches position ",
                                           begin.answer - 1, "; the context of ", context_length,
                                           " tokens leaves none to generate"));
}

}  // namespace

std::string_view ChunkPositionsName(ChunkPositions positions) {
  return positions == ChunkPositions::kOverlap ? "overlap" : "sequential";
}

std::string_view ChunkScopeName(ChunkScope scope) {
  return scope == ChunkScope::kSystem ? "system" : "alone";
}

std::string ChunkRepairName(const ChunkRepair& repair) {
  switch (repair.kind) {
    case ChunkRepair::Kind::kNone:
      return "none";
    case ChunkRepair::Kind::kFirst:
      return StrCat(kFirstPrefix, repair.first_tokens);
    case ChunkRepair::Kind::kShare:
      return StrCat(kSharePrefix, ShareText(repair.share_millionths));
  }
  return "none";
}

absl::StatusOr<ChunkPositions> ParseChunkPositions(std::string_view name) {
  for (const ChunkPositions positions : {ChunkPositions::kOverlap, ChunkPositions::kSequential}) {
    if (name == ChunkPositionsName(positions)) return positions;
  }
  return BadName("chunk_positions", name, "overlap or sequential");
}

absl::StatusOr<ChunkScope> ParseChunkScope(std::string_view name) {
  for (const ChunkScope scope : {ChunkScope::kSystem, ChunkScope::kAlone}) {
    if (name == ChunkScopeName(scope)) return scope;
  }
  return BadName("chunk_scope", name, "system or alone");
}

absl::StatusOr<ChunkRepair> ParseChunkRepair(std::string_view name) {
  ChunkRepair repair;
  if (name == "none") return repair;
  if (name.starts_with(kFirstPrefix)) {
    repair.kind = ChunkRepair::Kind::kFirst;
    repair.first_tokens = ParseWhole(name.substr(kFirstPrefix.size()), kMaxPromptTokenIds);
    if (repair.first_tokens >= 0) return repair;
  } else if (name.starts_with(kSharePrefix)) {
    repair.kind = ChunkRepair::Kind::kShare;
    repair.share_millionths = ParseShare(name.substr(kSharePrefix.size()));
    if (repair.share_millionths >= 0) return repair;
  }
  return BadRepair(name);
}

int64_t TokensOf(const ChunkedPrompt& prompt) {
  size_t tokens = prompt.system.size() + prompt.question.size();
  for (const std::vector<TokenId>& chunk : prompt.chunks) tokens += chunk.size();
  return static_cast<int64_t>(tokens);
}

std::vector<TokenId> FlatTokens(const ChunkedPrompt& prompt) {
  std::vector<TokenId> flat;
  flat.reserve(static_cast<size_t>(TokensOf(prompt)));
  const auto append = [&flat](const std::vector<TokenId>& part) {
    flat.insert(flat.end(), part.begin(), part.end());
  };
  append(prompt.system);
  for (const std::vector<TokenId>& chunk : prompt.chunks) append(chunk);
  append(prompt.question);
  return flat;
}

PartPositions PositionsOf(const ChunkedPrompt& prompt) {
  PartPositions out;
  const bool overlap = prompt.options.positions == ChunkPositions::kOverlap;
  const auto first = static_cast<int64_t>(prompt.system.size());
  int64_t end = first;  // of all parts so far
  for (const std::vector<TokenId>& chunk : prompt.chunks) {
    const int64_t begin = overlap ? first : end;
    out.chunks.push_back(begin);
    end = std::max(end, begin + static_cast<int64_t>(chunk.size()));
  }
  out.question = end;
  out.answer = end + static_cast<int64_t>(prompt.question.size());
  return out;
}

std::string PartName(size_t part, size_t chunks) {
  return StrCat("part ", part, " (", FieldName(part, chunks), ")");
}

absl::Status CheckChunkCount(int64_t chunks) {
  return CheckCount("chunks", chunks, kMaxPromptChunks);
}

absl::Status CheckChunkSeparator(std::string_view separator) {
  return CheckCount("chunk_separator", static_cast<int64_t>(separator.size()),
                    kMaxChunkSeparatorBytes, "bytes");
}

absl::Status CheckPartsNotEmpty(const ChunkedText& parts) {
  const size_t chunks = parts.chunks.size();
  for (size_t i = 0; i < chunks; ++i) {
    RETURN_IF_ERROR(CheckNotEmpty(i + 1, chunks, parts.chunks[i]));
  }
  return CheckNotEmpty(chunks + 1, chunks, parts.question);
}

absl::Status CheckChunkedPrompt(const ChunkedPrompt& prompt, int32_t context_length,
                                int32_t vocabulary) {
  const size_t chunks = prompt.chunks.size();
  RETURN_IF_ERROR(CheckChunkCount(static_cast<int64_t>(chunks)));
  RETURN_IF_ERROR(CheckCount("the prompt", TokensOf(prompt), kMaxPromptTokenIds, "tokens"));
  RETURN_IF_ERROR(CheckPart(0, chunks, prompt.system, vocabulary));
  for (size_t i = 0; i < chunks; ++i) {
    RETURN_IF_ERROR(CheckPart(i + 1, chunks, prompt.chunks[i], vocabulary));
  }
  RETURN_IF_ERROR(CheckPart(chunks + 1, chunks, prompt.question, vocabulary));
  if (context_length == 0) return absl::OkStatus();
  return CheckPositions(prompt, context_length);
}

}  // namespace baton
