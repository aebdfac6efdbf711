// Describes the draw of one token from a row of logits. These are plain structs that also lie in
// device memory.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "common/token_id.h"
#include "kernels/philox.h"

namespace baton {

// How to choose a token from logits to which penalties and biases were already applied. Ranges:
// common/sampling_params.h.
struct DrawRule {
  float temperature = 1;  // 0: greedy, the first token by rank
  int32_t top_k = 0;      // keep every token when 0, or the vocabulary size or more
  float top_p = 1;
  float min_p = 0;
};

struct RowDraw {
  int32_t row = -1;  // row of the logits; negative: draw nothing
  DrawRule rule;
  DrawKey key;
};

// A value to add to a token's logit before a draw: a bias, or -infinity for a forbidden token.
struct LogitAddition {
  TokenId token = 0;
  float value = 0;
  bool operator==(const LogitAddition& other) const {
    return token == other.token && value == other.value;
  }
};

// Codes that a draw returns in place of a token. All are negative.
inline constexpr TokenId kDrawSkipped = -1;         // the draw has no row
inline constexpr TokenId kDrawNotANumber = -2;      // a logit is NaN or +infinity
inline constexpr TokenId kDrawNothingAllowed = -3;  // every logit is -infinity

}  // namespace baton
