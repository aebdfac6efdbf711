#include "model/sampler_state.h"

namespace baton {

SamplerState::SamplerState(std::span<const TokenId> prompt) {
  for (const TokenId token : prompt) counts_[token].in_prompt = true;
}

void SamplerState::Accept(TokenId token) {
  ++counts_[token].generated;
  ++generated_;
}

}  // namespace baton
