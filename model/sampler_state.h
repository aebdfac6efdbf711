// What the penalties know of a sequence: how often each of its tokens occurs. Rebuilt from the
// tokens after a migration.
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

  // A generated token joins the sequence.
  void Accept(TokenId token);

  int32_t generated() const { return generated_; }
  const absl::flat_hash_map<TokenId, Count>& counts() const { return counts_; }

 private:
  absl::flat_hash_map<TokenId, Count> counts_;
  int32_t generated_ = 0;
};

}  // namespace baton
