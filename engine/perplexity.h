// How well a model predicts a text: the mean negative log-likelihood of each token given those
// before it.
//
// Runs through the same runner, paging and kernels as serving does.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "engine/model_loader.h"

namespace baton {

struct PerplexityResult {
  int64_t tokens = 0;     // predicted
  double nll = 0;         // mean, nats
  double perplexity = 0;  // exp(nll)
};

// A text longer than the context is cut into windows of the context's length, each predicted from
// its own first token on. InvalidArgument: fewer than two tokens, or one outside the vocabulary.
// `progress` gets the share that is done.
absl::StatusOr<PerplexityResult> MeasurePerplexity(const LoadedModel& model,
                                                   const EngineOptions& options,
                                                   std::span<const TokenId> tokens,
                                                   const std::function<void(double)>& progress);

}  // namespace baton
