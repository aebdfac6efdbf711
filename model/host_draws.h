// Makes a step's draws on the host, for devices that do not.
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
  // StepResult::drawn of `input`. `logits` returns a row, counted over all chunks in order. Asks
  // once which chunks are wanted, and draws for those only.
  std::vector<absl::StatusOr<TokenId>> Draw(
      const StepInput& input, const std::function<std::span<const float>(int32_t row)>& logits);

 private:
  Sampler sampler_;
};

}  // namespace baton
