// Draws on the emulator against the naive draw of NUMERICS §9.
#include "kernels/cuda/launch_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/sample_params.h"
#include "tests/common/random_operations.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/kernels/sample_case.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 16009;

TEST(CudaSample, EqualsTheNaiveDraw) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  // Under ThreadSanitizer, 60 rounds take a minute and a half.
  const int rounds = kThreadSanitizer ? 6 : 60;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    const auto vocabulary = static_cast<int64_t>(1 + random() % (round % 4 == 0 ? 9000 : 200));
    Draws draws(random, 3, 8, vocabulary);
    const std::vector<float> before = draws.logits;
    LaunchSample(launcher, draws.args());
    ASSERT_NO_FATAL_FAILURE(draws.ExpectDrawn());
    ASSERT_EQ(std::memcmp(before.data(), draws.logits.data(), before.size() * sizeof(float)), 0);
  }
}

// More candidates than the list in shared memory has room for: every pass reads the row again.
TEST(CudaSample, SelectsAmongManyEqualLogits) {
  std::mt19937_64 random(kSeed + 1);
  ChosenLauncher launcher;
  Draws draws(random, 1, 12, 5000);
  for (float& logit : draws.logits) logit = static_cast<float>(random() % 2);
  draws.logits[17] = -0.0f;
  for (size_t i = 0; i < draws.draws.size(); ++i) {
    draws.draws[i].row = 0;
    draws.draws[i].rule = {.temperature = 3,
                           .top_k = i % 3 == 0 ? 0 : static_cast<int32_t>(1 + random() % 4999),
                           .top_p = i % 2 == 0 ? 0.9f : 1.0f,
                           .min_p = i % 4 == 1 ? 0.5f : 0.0f};
  }
  LaunchSample(launcher, draws.args());
  draws.ExpectDrawn();
}

TEST(CudaSample, WithoutAdditionsNoListIsRead) {
  std::mt19937_64 random(kSeed + 2);
  ChosenLauncher launcher;
  Draws draws(random, 1, 4, 3000);
  draws.first_addition.assign(draws.draws.size() + 1, 0);
  SampleArgs args = draws.args();
  args.additions = nullptr;
  args.first_addition = nullptr;
  LaunchSample(launcher, args);
  draws.ExpectDrawn();
}

// As in a graph: the kernel reads the index of its first token from memory.
TEST(CudaSample, WritesFromTheFirstTokenOn) {
  std::mt19937_64 random(kSeed + 4);
  ChosenLauncher launcher;
  Draws draws(random, 2, 5, 300);
  constexpr int32_t kFirst = 7;
  const std::vector<int32_t> first = {kFirst};
  std::vector<TokenId> tokens(kFirst + draws.draws.size() + 1, -77);
  SampleArgs args = draws.args();
  args.tokens = tokens.data();
  args.first_token = first.data();
  LaunchSample(launcher, args);
  EXPECT_EQ(tokens.back(), -77);
  std::copy(tokens.begin() + kFirst, tokens.end() - 1, draws.tokens.begin());
  std::fill(tokens.begin() + kFirst, tokens.end() - 1, -77);
  EXPECT_THAT(tokens, testing::Each(-77)) << "written elsewhere";
  draws.ExpectDrawn();
}

// Without ThreadSanitizer, the largest vocabulary.
TEST(CudaSample, DrawsFromTheLastChunkOfALargeVocabulary) {
  std::mt19937_64 random(kSeed + 3);
  ChosenLauncher launcher;
  // ThreadSanitizer is slow: it gets more chunks than a block has threads, and no more.
  Draws draws(random, 1, 1, kThreadSanitizer ? 300 * kSampleChunk : int64_t{1} << 19);
  for (float& logit : draws.logits) logit = -30;
  for (int i = 1; i <= 20; ++i) draws.logits[draws.logits.size() - i] = 0.25f * i;
  draws.first_addition.assign(draws.draws.size() + 1, 0);
  draws.draws[0] = {.row = 0, .rule = {.top_k = 5, .top_p = 0.8f}, .key = {1, 0, 4}};
  LaunchSample(launcher, draws.args());
  draws.ExpectDrawn();
}

TEST(CudaFeedDrawnTokens, ReplacesTheTokensThatAnEarlierStepDrew) {
  ChosenLauncher launcher;
  const std::vector<TokenId> drawn = {70, kDrawNotANumber, 90};
  const std::vector<int32_t> source = {-1, 2, 0, 1, -1};
  std::vector<int32_t> token_ids = {1, 2, 3, 4, 5};
  LaunchFeedDrawnTokens(
      launcher,
      {.drawn = drawn.data(), .source = source.data(), .token_ids = token_ids.data(), .tokens = 5});
  EXPECT_EQ(token_ids, (std::vector<int32_t>{1, 90, 70, 0, 5}));
}

// Checks shapes, and runs nothing.
class CheckingLauncher final : public KernelLauncher {
 public:
  void Launch(std::string_view kernel, const LaunchShape& shape, const void*, size_t) override {
    EXPECT_TRUE(CheckLaunch(kernel, shape).ok()) << CheckLaunch(kernel, shape);
    ++launches;
  }
  int multiprocessors() const override { return 3; }
  uint32_t max_shared_bytes() const override { return gpu_emulator::kMostSharedBytes; }
  std::byte* Workspace(std::string_view, size_t bytes) override {
    workspace_.resize(bytes);
    return workspace_.data();
  }
  int launches = 0;

 private:
  std::vector<std::byte> workspace_;
};

// CUDA allows 65535 blocks in the second dimension of a grid.
TEST(CudaSample, TakesMoreDrawsThanTheSecondDimensionOfAGridHasBlocks) {
  CheckingLauncher launcher;
  LaunchSample(launcher, {.vocabulary = 4096, .count = 70'000});
  EXPECT_EQ(launcher.launches, 3);
}

}  // namespace
}  // namespace baton
