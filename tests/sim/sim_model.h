// The model that simulated workers run: a literal function of tokens, and kernels over a pool.
//
// The model has two layers. The K and V rows of a slot in a layer are a hash of the token's hidden
// state. The hidden state after a layer is a fold over the rows of all visible slots, in slot
// order. Every visible byte therefore affects all later rows, the logits and the tokens. A missing,
// foreign, stale or misplaced row changes them too. The literal function computes the same values
// without a pool. It is the oracle for a request's answer.
//
// A token sees every slot up to its own. In a layer with a sliding window it sees only the last
// ones. Such a layer forms its own KV group.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache_spec.h"
#include "common/strong_int.h"
#include "engine/request.h"
#include "text/tokenizer.h"

namespace baton {

inline constexpr int32_t kSimVocabulary = 64;  // 63 characters, then the end token
inline constexpr TokenId kSimEndToken = kSimVocabulary - 1;
inline constexpr int32_t kSimLayers = 2;
inline constexpr int32_t kSimHeadDim = 4;  // f32: a row is two 64-bit words

// Selects a variant of the model.
struct SimModel {
  int32_t window = 0;        // slots that a token sees in window_layer; 0: every layer sees all
  int32_t window_layer = 1;  // the other layer has full attention

  int32_t groups() const { return window == 0 ? 1 : 2; }
  int32_t WindowOf(int32_t layer) const { return layer == window_layer ? window : 0; }
  KvCacheSpec Spec() const;
};

// K or V row of one slot in one layer.
using SimRow = std::array<uint64_t, 2>;
struct SimRows {
  SimRow key;
  SimRow value;
};

uint64_t SimEmbedding(TokenId token, int32_t position);
SimRows SimRowsOf(int32_t layer, uint64_t hidden);
// Adds one more visible slot to the fold. Call it in slot order, from slot 0 on.
uint64_t SimFold(uint64_t fold, const SimRows& rows);
void SimLogits(uint64_t fold, std::span<float> row);  // [kSimVocabulary]

const Tokenizer& SimTokenizer();

// Expected answer of a request: tokens, text, finish reason, and the chained hash of every sampled
// row of logits.
struct SimAnswer {
  std::vector<TokenId> tokens;
  std::string text;
  FinishReason reason = FinishReason::kLength;
  uint64_t logits_hash = 0;
};
SimAnswer LiteralAnswer(const SimModel& model, std::span<const TokenId> prompt,
                        const SamplingParams& sampling, int32_t context_length, int32_t choice = 0);

}  // namespace baton
