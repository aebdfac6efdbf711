// Makes the draws of a step on the host, for devices that do not make them.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/model_runner.h"
#include "model/sampler.h"

namespace baton {

class HostDraws {
 public:
  // Returns StepResult::drawn of `input`. logits(row) returns a row, counted over all chunks in
  // order. Asks once which chunks are wanted, and draws only for those.
  std::vector<absl::StatusOr<TokenId>> Draw(
      const StepInput& input, const std::function<std::span<const float>(int32_t row)>& logits);

 private:
  Sampler sampler_;
};

}  // namespace baton
