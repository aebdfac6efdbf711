// Settings for drawing one token from a row of a step's logits.
//
// They cover the operations that a device can do with the row alone: temperature, top_k, top_p,
// min_p, and additions to single logits. Penalties need the host's token counts, so model/sampler.h
// applies them.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <span>

#include "common/sampling_params.h"
#include "common/strong_int.h"
#include "kernels/row_draw.h"

namespace baton {

// Fields have the same meaning as in SamplingParams.
struct TokenDraw {
  int32_t row = 0;  // index among the chunk's logit rows
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  DrawKey key;
  std::span<const LogitAddition> additions;  // added in this order, before the temperature

  DrawRule rule() const {
    return {.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
  }
};

inline TokenDraw DrawAs(const SamplingParams& params, const DrawKey& key) {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .key = key,
          .additions = {}};
}

}  // namespace baton
