// How long a step of an engine takes, by its profile. A step may mix decoding sequences with chunks
// of several prompts:
//
//   time = decode(sequences, mean context) + prefill(begin, tokens) - start
//
// `tokens` are those of all chunks, and `begin` is where one chunk with as many tokens and the same
// mean position would begin. `start` is the time of a step that computes nothing, such as reading
// the weights: the prefill time continued to 0 tokens. A step pays it once. A step without decoding
// sequences takes prefill(begin, tokens).
//
// Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <span>

#include "loadtest/engine_profile.h"

namespace baton {

struct PrefillPiece {
  int32_t begin = 0;
  int32_t tokens = 0;
};

class StepTimes {
 public:
  explicit StepTimes(const EngineProfile& profile);

  // `context_tokens`: of all decoding sequences together. 0 for a step without work; else >= 1.
  int64_t StepUs(int32_t sequences, int64_t context_tokens,
                 std::span<const PrefillPiece> pieces) const;
  // Time of tokens [cached, total) of a prompt alone on a worker, in chunks of `chunk` tokens.
  // Without the start of each step, which decoding sequences may pay.
  double PrefillUs(int64_t cached, int64_t total, int32_t chunk) const;
  // The shortest time of any step that computes these tokens.
  double LeastPrefillUs(int64_t cached, int64_t total) const;
  double start_us() const { return start_us_; }
  const EngineProfile& profile() const { return profile_; }

 private:
  double PieceUs(double begin, double tokens) const;

  const EngineProfile profile_;
  double start_us_ = 0;
};

}  // namespace baton
