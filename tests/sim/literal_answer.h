// The expected answer of a request, computed token by token without a pool, a cache or a scheduler.
//
// Chunked prompts follow the definitions of issue and NUMERICS alone: the positions and frames of
// the parts, and the rows of a repair. Nothing here uses production's layouts or keys.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/prompt_chunks.h"
#include "engine/request.h"
#include "tests/sim/sim_model.h"

namespace baton {

struct SimAnswer {
  std::vector<TokenId> tokens;
  std::string text;
  FinishReason reason = FinishReason::kLength;
  uint64_t logits_hash = 0;  // chained over every sampled row of logits
};

SimAnswer LiteralAnswer(const SimModel& model, std::span<const TokenId> prompt,
                        const SamplingParams& sampling, int32_t context_length, int32_t choice = 0);
// The same for a chunked prompt. REQUIRES: the model has no window.
SimAnswer LiteralAnswer(const SimModel& model, const ChunkedPrompt& prompt,
                        const SamplingParams& sampling, int32_t context_length, int32_t choice = 0);

// Number of tokens that the repair of a prompt computes again.
int32_t LiteralRepairedTokens(const ChunkedPrompt& prompt);

}  // namespace baton
