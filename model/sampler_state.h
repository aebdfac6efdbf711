// Token counts of a sequence, for penalties: how often each token occurs. After a migration they
// are rebuilt from the tokens.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "common/strong_int.h"

namespace baton {

class SamplerState {
 public:
  struct Count {
    bool in_prompt = false;
    int32_t generated = 0;
  };

  SamplerState() = default;
  explicit SamplerState(std::span<const TokenId> prompt);

  // Adds a generated token.
  void Accept(TokenId token);

  int32_t generated() const { return generated_; }
  const absl::flat_hash_map<TokenId, Count>& counts() const { return counts_; }

 private:
  absl::flat_hash_map<TokenId, Count> counts_;
  int32_t generated_ = 0;
};

}  // namespace baton
