// The model that simulated workers run: a literal function of tokens, and kernels over a pool.
//
// The model has two layers. The K and V rows of a slot in a layer are a hash of the token's hidden
// state. The hidden state after a layer is a fold over the rows of all visible slots, in slot
// order. Every visible byte therefore affects all later rows, the logits and the tokens. A missing,
// foreign, stale or misplaced row changes them too. The literal function (literal_answer.h)
// computes the same values without a pool. It is the oracle for a request's answer.
//
// A token sees every slot up to its own. In a layer with a sliding window it sees only the last
// ones. Such a layer forms its own KV group.
//
// A token of a chunked prompt sees runs of slots: those of the parts before it, then its own. As in
// kernels/NUMERICS.md §8, a run is divided into segments that begin at the run's origin. The hidden
// state depends on the segments' folds in order, and on the position that the query has for each.
// So a wrong position shift, a visible neighbour or a slot behind a part's end changes the tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache_spec.h"
#include "common/token_id.h"
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
// Returns how much the rows of a slot would change, for a repair that compares. Small numbers, so
// that many slots change equally.
float SimChange(const SimRows& stored, const SimRows& computed);
// Adds one more visible slot of a segment to the segment's fold. Call it in slot order.
uint64_t SimFold(uint64_t fold, const SimRows& rows);
// Slots of a segment. Pieces of long prompt chunks begin at a segment.
inline constexpr int32_t kSimSegment = 256;
// Joins the folds of the segments that a token sees, in order. With one segment the result is its
// fold.
class SimSegments {
 public:
  // `query`: position of the token's query for this segment.
  void Add(int32_t query, uint64_t fold);
  uint64_t Result() const { return count_ == 1 ? first_ : joined_; }

 private:
  int32_t count_ = 0;
  uint64_t first_ = 0;
  uint64_t joined_ = 0;
};
void SimLogits(uint64_t fold, std::span<float> row);  // [kSimVocabulary]

const Tokenizer& SimTokenizer();

}  // namespace baton
