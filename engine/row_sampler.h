// The tokens of a row of logits that a step computed: as the device drew them, or drawn here.
//
// Both ways give the same token (TokenSource).
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "engine/generation.h"
#include "engine/step_pipeline.h"
#include "model/model_runner.h"
#include "model/sampler.h"
#include "text/tokenizer.h"

namespace baton {

class RowSampler {
 public:
  // `runner` outlives this.
  RowSampler(ModelRunner* runner, const Tokenizer& tokenizer)
      : runner_(runner),
        sampler_({tokenizer.end_of_generation().begin(), tokenizer.end_of_generation().end()}) {}

  // The token that `source` draws from the row. `index`: of the source among those that the step
  // drew for. Internal: the row's logits allow no token. REQUIRES: the row's step was collected
  // last.
  absl::StatusOr<DrawnToken> Take(const TokenSource& source, const SampledRow& row, size_t index);

 private:
  ModelRunner* const runner_;
  Sampler sampler_;
};

}  // namespace baton
