// Chunked prompts for the fake model (fake_worker_parts.h), and the answers that they must get.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "common/prompt_chunks.h"
#include "engine/request.h"
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

inline std::vector<ChunkOptions> EveryMode() {
  std::vector<ChunkOptions> modes;
  for (const auto positions : {ChunkPositions::kOverlap, ChunkPositions::kSequential}) {
    for (const auto scope : {ChunkScope::kSystem, ChunkScope::kAlone}) {
      modes.push_back({.positions = positions, .scope = scope});
    }
  }
  return modes;
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

// Computes rows of the parts again, as the issue says: in the order of the prompt, each with
// everything before it. `repaired[part][token]` says which.
inline void RepairParts(const std::vector<std::vector<bool>>& repaired,
                        std::vector<SeenPart>& parts) {
  uint64_t seen = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    SeenPart& part = parts[i];
    for (size_t token = 0; token < part.tokens.size(); ++token) {
      if (!repaired[i][token]) continue;
      const std::vector<uint64_t> before(part.values.begin(), part.values.begin() + token);
      part.values[token] =
          RepairedValue(seen, DigestOf(before), part.position + static_cast<int32_t>(token),
                        part.shift, part.tokens[token]);
    }
    seen = part.Behind(seen);
  }
}

inline std::vector<std::vector<bool>> RepairedTokens(const ChunkedPrompt& prompt,
                                                     const std::vector<SeenPart>& parts) {
  std::vector<std::vector<bool>> repaired;
  const size_t first = (prompt.system.empty() ? 0 : 1) +
                       (prompt.options.scope == ChunkScope::kSystem ? 1 : 0);
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<bool>& tokens = repaired.emplace_back(parts[i].tokens.size());
    const auto most = static_cast<size_t>(prompt.options.repair.first_tokens);
    for (size_t token = 0; i >= first && token < std::min(most, tokens.size()); ++token) {
      tokens[token] = true;
    }
  }
  return repaired;
}

// Number of tokens that a request computes again.
inline int32_t CountRepaired(const ChunkedPrompt& prompt) {
  int32_t count = 0;
  for (const std::vector<bool>& part : RepairedTokens(prompt, StoredParts(prompt))) {
    count += static_cast<int32_t>(std::count(part.begin(), part.end(), true));
  }
  return count;
}

// Answer that a greedy request must get, computed without KV, from the rules of the issue. Chunks
// are shorter than a piece.
inline std::vector<TokenId> ChunkedContinuation(const FakeRunner& runner,
                                                const ChunkedPrompt& prompt, int32_t count) {
  std::vector<SeenPart> parts = StoredParts(prompt);
  RepairParts(RepairedTokens(prompt, parts), parts);
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
