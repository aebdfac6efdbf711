// Measures how well a model predicts a text: the mean negative log-likelihood of each token, given
// the tokens before it.
//
// Uses the same runner, paging and kernels as serving.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "engine/model_loader.h"

namespace baton {

struct PerplexityResult {
  int64_t tokens = 0;     // number of predicted tokens
  double nll = 0;         // mean, nats
  double perplexity = 0;  // exp(nll)
};

// Measures the perplexity of `tokens`. A text longer than the context is cut into windows of the
// context's length. The first token of each window is not predicted. InvalidArgument: fewer than
// two tokens, a token outside the vocabulary, or a context below two tokens. `progress` gets the
// share that is done, in [0, 1].
absl::StatusOr<PerplexityResult> MeasurePerplexity(const LoadedModel& model,
                                                   const EngineOptions& options,
                                                   std::span<const TokenId> tokens,
                                                   const std::function<void(double)>& progress);

}  // namespace baton
