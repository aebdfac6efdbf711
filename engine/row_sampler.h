// Returns the tokens drawn from a row of logits that a step computed. The device drew them, or this
// class draws them on the host. Both ways give the same token (TokenSource).
//
// Thread safety: engine thread only.
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
  // `runner` must outlive this.
  RowSampler(ModelRunner* runner, const Tokenizer& tokenizer)
      : runner_(runner),
        sampler_({tokenizer.end_of_generation().begin(), tokenizer.end_of_generation().end()}) {}

  // Returns the token that `source` draws from the row. `index`: index of the source among those
  // that the step drew for. Internal: the row's logits allow no token. REQUIRES: the row's step was
  // collected last.
  absl::StatusOr<DrawnToken> Take(const TokenSource& source, const SampledRow& row, size_t index);

 private:
  ModelRunner* const runner_;
  Sampler sampler_;
};

}  // namespace baton
