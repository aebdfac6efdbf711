#include "model/host_draws.h"

#include "absl/status/status.h"

namespace baton {

std::vector<absl::StatusOr<TokenId>> HostDraws::Draw(
    const StepInput& input, const std::function<std::span<const float>(int32_t row)>& logits) {
  std::vector<absl::StatusOr<TokenId>> drawn;
  size_t count = 0;
  for (const StepChunk& chunk : input.chunks) count += chunk.draws.size();
  if (count == 0) return drawn;
  drawn.reserve(count);
  const size_t wanted = input.wanted ? static_cast<size_t>(input.wanted()) : input.chunks.size();
  int32_t first_row = 0;
  for (size_t i = 0; i < input.chunks.size(); ++i) {
    const StepChunk& chunk = input.chunks[i];
    for (const TokenDraw& draw : chunk.draws) {
      if (i < wanted) {
        drawn.push_back(sampler_.Draw(logits(first_row + draw.row), draw));
      } else {
        drawn.push_back(absl::CancelledError("the chunk is no longer needed"));
      }
    }
    first_row += chunk.logit_rows;
  }
  return drawn;
}

}  // namespace baton
