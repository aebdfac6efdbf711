// Checks that the bits of a token do not depend on the other tokens of its batch.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton {

// Calls launch(tokens, out) for each batch size, smallest first. `out` is [tokens, cols]. The same
// tokens must begin every batch.
inline void ExpectSameBitsInEveryBatch(std::initializer_list<int64_t> batch_sizes, int64_t cols,
                                       absl::FunctionRef<void(int64_t tokens, float* out)> launch) {
  std::vector<std::vector<float>> outs;
  for (const int64_t tokens : batch_sizes) {
    std::vector<float> out(tokens * cols);
    launch(tokens, out.data());
    for (const std::vector<float>& earlier : outs) {
      ASSERT_TRUE(std::equal(earlier.begin(), earlier.end(), out.begin())) << tokens << " tokens";
    }
    outs.push_back(std::move(out));
  }
}

}  // namespace baton
