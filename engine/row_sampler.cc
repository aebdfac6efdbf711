#include "engine/row_sampler.h"

#include <span>

#include "common/status_macros.h"

namespace baton {

absl::StatusOr<DrawnToken> RowSampler::Take(const TokenSource& source, const SampledRow& row,
                                            size_t index) {
  const std::span<const float> logits =
      source.needs_logits() ? runner_->Logits(row.step, row.row) : std::span<const float>();
  if (source.draws_on_host()) return source.Draw(logits, row.position, sampler_);
  ASSIGN_OR_RETURN(const TokenId token, row.drawn[index]);
  return source.Describe(token, logits, sampler_);
}

}  // namespace baton
