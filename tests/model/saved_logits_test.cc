#include "model/saved_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/create_device.h"

namespace baton {
namespace {

TEST(SavedLogits, HaveTheRowsOfTheChunksThatAsk) {
  const auto device = *CreateDevice({.name = "cpu-async", .threads = 1});
  const auto stream = device->CreateStream();
  constexpr int64_t kVocabulary = 3;
  std::vector<float> logits = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3};
  StepInput input;
  input.chunks.push_back({.tokens = {}, .block_table = {}, .logit_rows = 1});
  input.chunks.push_back({.tokens = {}, .block_table = {}, .logit_rows = 2, .keeps_logits = true});
  input.chunks.push_back({.tokens = {}, .block_table = {}, .logit_rows = 0, .keeps_logits = true});
  input.chunks.push_back({.tokens = {}, .block_table = {}, .logit_rows = 1, .keeps_logits = true});
  SavedLogits kept;
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(kept.Keep(input, logits.data(), kVocabulary, *device, *stream).ok());
    stream->Synchronize();
    EXPECT_TRUE(kept.Row(0).empty());
    for (int32_t row = 1; row < 4; ++row) {
      const float value = logits[row * kVocabulary];
      EXPECT_EQ(std::vector<float>(kept.Row(row).begin(), kept.Row(row).end()),
                std::vector<float>(kVocabulary, value));
    }
    EXPECT_TRUE(kept.Row(4).empty());
    EXPECT_TRUE(kept.Row(-1).empty());
    for (float& logit : logits) logit += 10;
  }
}

}  // namespace
}  // namespace baton
