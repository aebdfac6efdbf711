#include "loadtest/step_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

// 100 us to read the weights, then 10 us a token, 1 us more for each 100 tokens before it.
EngineProfile LinearProfile() {
  EngineProfile profile;
  profile.max_context = 10'000;
  profile.prefill.rows = {0, 1000};
  profile.prefill.columns = {10, 100};
  for (const int64_t begin : profile.prefill.rows) {
    std::vector<double>& us = profile.prefill.us.emplace_back();
    for (const int64_t tokens : profile.prefill.columns) {
      us.push_back(100 + 10.0 * static_cast<double>(tokens) +
                   0.01 * static_cast<double>(tokens * begin));
    }
  }
  profile.decode = {.rows = {1, 10}, .columns = {100, 1000}, .us = {{110, 120}, {200, 300}}};
  return profile;
}

int64_t Us(int32_t sequences, int64_t context, const std::vector<PrefillPiece>& pieces) {
  return StepTimes(LinearProfile()).StepUs(sequences, context, pieces);
}

TEST(StepTimes, AreThoseOfTheProfileForOnePromptAndForDecoding) {
  EXPECT_EQ(Us(0, 0, {{.begin = 0, .tokens = 100}}), 1100);
  EXPECT_EQ(Us(1, 100, {}), 110);
  EXPECT_EQ(Us(10, 10'000, {}), 300);
  EXPECT_EQ(Us(0, 0, {}), 0);
}

TEST(StepTimes, AStepReadsTheWeightsOnce) {
  EXPECT_DOUBLE_EQ(StepTimes(LinearProfile()).start_us(), 100);
  EXPECT_EQ(Us(1, 100, {{.begin = 0, .tokens = 100}}), 110 + 1000);
  EXPECT_EQ(Us(0, 0, {{.begin = 0, .tokens = 50}, {.begin = 0, .tokens = 50}}), 1100)
      << "two chunks take as long as one of both lengths, with the same mean position";
}

TEST(StepTimes, ManyShortChunksAreNotFree) {
  const StepTimes times(ComputedProfile());
  const std::vector<PrefillPiece> chunks(20, PrefillPiece{.begin = 0, .tokens = 100});
  const PrefillPiece one{.begin = 0, .tokens = 2000};
  EXPECT_NEAR(static_cast<double>(times.StepUs(0, 0, chunks)),
              static_cast<double>(times.StepUs(0, 0, {&one, 1})), 3000);
}

TEST(StepTimes, APromptTakesItsTokensBehindTheCachedOnes) {
  const StepTimes times(LinearProfile());
  EXPECT_DOUBLE_EQ(times.PrefillUs(0, 100, 100), 1000);
  EXPECT_DOUBLE_EQ(times.PrefillUs(100, 100, 100), 0);
  EXPECT_DOUBLE_EQ(times.PrefillUs(1000, 1100, 100), 2000);
}

TEST(StepTimes, NoStepTakesLessThanTheLeast) {
  const StepTimes times(ComputedProfile());
  for (const int64_t cached : {0, 1000, 50'000}) {
    for (const int32_t tokens : {1, 100, 512, 2048}) {
      const PrefillPiece piece{.begin = static_cast<int32_t>(cached), .tokens = tokens};
      EXPECT_LE(times.LeastPrefillUs(cached, cached + tokens),
                static_cast<double>(times.StepUs(0, 0, {&piece, 1})) + 1);
    }
  }
}

}  // namespace
}  // namespace baton
