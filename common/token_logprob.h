// Log-probabilities of tokens, as the model gave them.
//
// Thread safety: plain data.
#pragma once

#include <vector>

#include "common/token_id.h"

namespace baton {

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural logarithm
  bool operator==(const TokenLogprob&) const = default;
};

// Of one generated token.
struct TokenDetail {
  float logprob = 0;
  std::vector<TokenLogprob> top;  // most likely first
};

}  // namespace baton
