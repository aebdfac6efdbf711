// One draw of a token from a row of logits, as plain data that also lies in device memory.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "common/strong_int.h"
#include "kernels/philox.h"

namespace baton {

// How a token is chosen from logits that are adjusted already. Ranges: model/sampling_params.h.
struct DrawRule {
  float temperature = 1;  // 0: the first token by rank
  int32_t top_k = 0;      // 0, or the vocabulary's size and more: all
  float top_p = 1;
  float min_p = 0;
};

struct RowDraw {
  int32_t row = -1;  // of the logits; negative: nothing is drawn
  DrawRule rule;
  DrawKey key;
};

// Added to the logit of a token before a draw: a bias, or -infinity for a token that is held back.
struct LogitAddition {
  TokenId token = 0;
  float value = 0;
  bool operator==(const LogitAddition&) const = default;
};

// A draw's result in place of a token. All are negative.
inline constexpr TokenId kDrawSkipped = -1;         // the draw has no row
inline constexpr TokenId kDrawNotANumber = -2;      // a logit is NaN or +infinity
inline constexpr TokenId kDrawNothingAllowed = -3;  // every logit is -infinity

}  // namespace baton
