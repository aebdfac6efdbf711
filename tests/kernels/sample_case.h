// Draws for tests of the Sample op, and the tokens that the naive draw gives for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ops.h"
#include "tests/kernels/naive_draw.h"

namespace baton {

// A step's draws in the memory format of the Sample op: random rows, rules and additions, often
// several of one token.
struct Draws {
  Draws(std::mt19937_64& random, int64_t rows, int64_t count, int64_t vocabulary)
      : vocabulary(vocabulary) {
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> more = RandomLogits(random, vocabulary);
      logits.insert(logits.end(), more.begin(), more.end());
    }
    for (int64_t i = 0; i < count; ++i) {
      draws.push_back({.row = static_cast<int32_t>(random() % (rows + 1)) - 1,
                       .rule = RandomDrawRule(random),
                       .key = {random(), static_cast<uint32_t>(random() % 3), random() % 5000}});
      for (uint64_t a = random() % 5; a > 0; --a) {
        additions.push_back({static_cast<TokenId>(random() % std::min<int64_t>(vocabulary, 9)),
                             random() % 2 == 0 ? -std::numeric_limits<float>::infinity()
                                               : 0.1f * (random() % 200)});
      }
      first_addition.push_back(static_cast<int32_t>(additions.size()));
    }
    tokens.assign(count + 1, 12345);
  }

  SampleArgs args() {
    return {.logits = logits.data(),
            .vocabulary = vocabulary,
            .draws = draws.data(),
            .additions = additions.data(),
            .first_addition = first_addition.data(),
            .tokens = tokens.data(),
            .count = static_cast<int64_t>(draws.size())};
  }

  TokenId Expected(size_t i) const {
    if (draws[i].row < 0) return kDrawSkipped;
    const auto row = logits.begin() + draws[i].row * vocabulary;
    std::vector<float> adjusted(row, row + vocabulary);
    for (int32_t a = first_addition[i]; a < first_addition[i + 1]; ++a) {
      adjusted[additions[a].token] += additions[a].value;
    }
    return NaiveDraw(adjusted, draws[i].rule, draws[i].key);
  }

  void ExpectDrawn() const {
    for (size_t i = 0; i < draws.size(); ++i) EXPECT_EQ(tokens[i], Expected(i)) << "draw " << i;
    EXPECT_EQ(tokens.back(), 12345);
  }

  int64_t vocabulary;
  std::vector<float> logits;
  std::vector<RowDraw> draws;
  std::vector<LogitAddition> additions;
  std::vector<int32_t> first_addition = {0};
  std::vector<TokenId> tokens;
};

}  // namespace baton
