// Chunked prompts for the fake model (fake_worker_parts.h), and the answers that they must get.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "common/prompt_chunks.h"
#include "engine/request.h"
#include "tests/engine/chunk_modes.h"
#include "tests/engine/fake_worker_parts.h"
#include "tests/engine/worker_bench.h"

namespace baton {

inline ChunkedPrompt PromptOf(std::string_view system, const std::vector<std::string_view>& chunks,
                              std::string_view question, ChunkOptions options = {}) {
  ChunkedPrompt prompt{
      .options = options, .system = Bytes(system), .chunks = {}, .question = Bytes(question)};
  for (const std::string_view chunk : chunks) prompt.chunks.push_back(Bytes(chunk));
  return prompt;
}

inline GenerateRequest ChunkedRequest(const ChunkedPrompt& prompt, int32_t max_tokens) {
  GenerateRequest request = WorkerBench::Request(FlatTokens(prompt), max_tokens);
  request.chunked = prompt;
  return request;
}

inline std::vector<ChunkRepair> SomeRepairs() {
  std::vector<ChunkRepair> repairs;
  for (const int32_t tokens : {1, 4, 16, 1000}) {
    repairs.push_back({.kind = ChunkRepair::Kind::kFirst, .first_tokens = tokens});
  }
  for (const int32_t share : {1, 150'000, 600'000, 1'000'000}) {
    repairs.push_back({.kind = ChunkRepair::Kind::kShare, .share_millionths = share});
  }
  return repairs;
}

// A part as the question sees it: its tokens and the values of its slots.
struct SeenPart {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> values;
  int32_t position = 0;  // that its first key counts
  int32_t shift = 0;

  uint64_t Behind(uint64_t seen) const { return ChainBehindRun(seen, DigestOf(values), shift); }
};

inline SeenPart PartBehind(uint64_t chain, const std::vector<TokenId>& tokens, int32_t position,
                           int32_t shift) {
  SeenPart part{.tokens = tokens, .values = {}, .position = position, .shift = shift};
  for (const TokenId token : tokens) {
    part.values.push_back(chain = ChainPool::Chain(chain, token));
  }
  return part;
}

// The parts of a prompt without repair: the system part, if it has tokens, then the chunks.
inline std::vector<SeenPart> StoredParts(const ChunkedPrompt& prompt) {
  const bool alone = prompt.options.scope == ChunkScope::kAlone;
  const auto system_tokens = static_cast<int32_t>(prompt.system.size());
  const PartPositions positions = PositionsOf(prompt);
  std::vector<SeenPart> parts;
  uint64_t chunk_sees = 0;
  if (system_tokens > 0) {
    parts.push_back(PartBehind(0, prompt.system, 0, 0));
    if (!alone) chunk_sees = ChainOfPart(parts[0].Behind(0), system_tokens);
  }
  const int32_t computed_at = alone ? 0 : system_tokens;
  for (size_t i = 0; i < prompt.chunks.size(); ++i) {
    parts.push_back(PartBehind(chunk_sees, prompt.chunks[i], computed_at,
                               static_cast<int32_t>(positions.chunks[i]) - computed_at));
  }
  return parts;
}

// Value of a token if it is computed with everything before it, as the parts are now.
inline uint64_t ValueInFullFrame(const std::vector<SeenPart>& parts, size_t part, size_t token) {
  uint64_t seen = 0;
  for (size_t i = 0; i < part; ++i) seen = parts[i].Behind(seen);
  const SeenPart& own = parts[part];
  const std::vector<uint64_t> before(own.values.begin(), own.values.begin() + token);
  return RepairedValue(seen, DigestOf(before), own.position + static_cast<int32_t>(token),
                       own.shift, own.tokens[token]);
}

// The tokens that a prompt repairs, as (part, token), in the order of the prompt.
inline std::vector<std::pair<size_t, size_t>> RepairedTokens(const ChunkedPrompt& prompt,
                                                             const std::vector<SeenPart>& parts) {
  const ChunkRepair& repair = prompt.options.repair;
  const bool is_first = repair.kind == ChunkRepair::Kind::kFirst;
  const size_t most = is_first ? repair.first_tokens : repair.share_millionths > 0 ? 1'000'000 : 0;
  const size_t first_part =
      (prompt.system.empty() ? 0 : 1) + (prompt.options.scope == ChunkScope::kSystem ? 1 : 0);
  std::vector<std::pair<size_t, size_t>> tokens;
  for (size_t part = first_part; part < parts.size(); ++part) {
    const size_t end = std::min(most, parts[part].tokens.size());
    for (size_t token = 0; token < end; ++token) tokens.emplace_back(part, token);
  }
  if (is_first) return tokens;
  std::stable_sort(tokens.begin(), tokens.end(), [&](const auto& a, const auto& b) {
    const auto change = [&](const auto& at) {
      return FakeChange(parts[at.first].values[at.second],
                        ValueInFullFrame(parts, at.first, at.second));
    };
    return change(a) > change(b);
  });
  const double share = repair.share_millionths / 1e6;
  tokens.resize(static_cast<size_t>(std::ceil(share * static_cast<double>(tokens.size()) - 1e-9)));
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

// Number of tokens that a request computes again.
inline int32_t CountRepaired(const ChunkedPrompt& prompt) {
  return static_cast<int32_t>(RepairedTokens(prompt, StoredParts(prompt)).size());
}

// Answer that a greedy request must get, computed without KV, from the rules of the issue. Chunks
// are shorter than a piece.
inline std::vector<TokenId> ChunkedContinuation(const FakeRunner& runner,
                                                const ChunkedPrompt& prompt, int32_t count) {
  std::vector<SeenPart> parts = StoredParts(prompt);
  for (const auto& [part, token] : RepairedTokens(prompt, parts)) {
    parts[part].values[token] = ValueInFullFrame(parts, part, token);
  }
  uint64_t seen = 0;
  for (const SeenPart& part : parts) seen = part.Behind(seen);
  const auto question = static_cast<int32_t>(PositionsOf(prompt).question);
  uint64_t chain = ChainOfPart(seen, question);
  for (const TokenId token : prompt.question) chain = ChainPool::Chain(chain, token);
  std::vector<TokenId> said;
  while (static_cast<int32_t>(said.size()) < count) {
    said.push_back(runner.choose(
        chain, question + static_cast<int32_t>(prompt.question.size() + said.size())));
    chain = ChainPool::Chain(chain, said.back());
  }
  return said;
}

}  // namespace baton
