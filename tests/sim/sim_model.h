// The model that simulated workers run, as a literal function of tokens, and as kernels over a
// pool.
//
// Two layers. A layer's K and V row of a slot is a hash of that token's hidden state; the hidden
// state behind a layer is a fold over the rows of all visible slots, in slot order. So any byte of
// any visible row, a row that is missing, foreign, stale or at another position changes every
// later row, the logits and the tokens. The literal function computes the same without any memory:
// it is the oracle of what a request must be answered.
//
// Every slot up to a token's own is visible to it. In a layer with a sliding window only the last
// ones are, and such a layer is a KV group of its own.
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

// Which of the models it is.
struct SimModel {
  int32_t window = 0;        // slots that a token sees in window_layer; 0: every layer sees all
  int32_t window_layer = 1;  // the other has full attention

  int32_t groups() const { return window == 0 ? 1 : 2; }
  int32_t WindowOf(int32_t layer) const { return layer == window_layer ? window : 0; }
  KvCacheSpec Spec() const;
};

// What K or V of one slot in one layer consists of.
using SimRow = std::array<uint64_t, 2>;
struct SimRows {
  SimRow key;
  SimRow value;
};

uint64_t SimEmbedding(TokenId token, int32_t position);
SimRows SimRowsOf(int32_t layer, uint64_t hidden);
// One more visible slot, in slot order, from 0 on.
uint64_t SimFold(uint64_t fold, const SimRows& rows);
void SimLogits(uint64_t fold, std::span<float> row);  // [kSimVocabulary]

const Tokenizer& SimTokenizer();

// What a request must be answered: tokens, text and reason, and the chained hash of every sampled
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
