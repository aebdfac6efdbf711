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

inline uint64_t ChainOver(uint64_t chain, const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens) chain = ChainPool::Chain(chain, token);
  return chain;
}

// Answer that a greedy request must get, computed without KV, from the rules of the issue. Chunks
// are shorter than a piece.
inline std::vector<TokenId> ChunkedContinuation(const FakeRunner& runner,
                                                const ChunkedPrompt& prompt, int32_t count) {
  const bool alone = prompt.options.scope == ChunkScope::kAlone;
  const bool overlap = prompt.options.positions == ChunkPositions::kOverlap;
  const auto length = [](const std::vector<TokenId>& tokens) {
    return static_cast<int32_t>(tokens.size());
  };
  const int32_t first = length(prompt.system);
  const uint64_t system = ChainOver(0, prompt.system);
  const uint64_t behind_system = first == 0 ? 0 : ChainBehindRun(0, system, first, 0);
  uint64_t seen = behind_system;
  int32_t end = first;  // of the parts so far, if sequential
  int32_t longest = 0;
  for (const std::vector<TokenId>& chunk : prompt.chunks) {
    const bool sees_nothing = alone || first == 0;
    const uint64_t chain = ChainOver(sees_nothing ? 0 : ChainOfPart(behind_system, first), chunk);
    const int32_t at = overlap ? first : end;
    seen = ChainBehindRun(seen, chain, length(chunk), at - (alone ? 0 : first));
    end += length(chunk);
    longest = std::max(longest, length(chunk));
  }
  const int32_t question = overlap ? first + longest : end;
  uint64_t chain = ChainOver(ChainOfPart(seen, question), prompt.question);
  std::vector<TokenId> said;
  while (static_cast<int32_t>(said.size()) < count) {
    said.push_back(runner.choose(
        chain, question + length(prompt.question) + static_cast<int32_t>(said.size())));
    chain = ChainPool::Chain(chain, said.back());
  }
  return said;
}

}  // namespace baton
