#include "kernels/cpu/sample.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_stream.h"
#include "tests/kernels/naive_draw.h"
#include "tests/kernels/sample_case.h"

namespace baton {
namespace {

class SampleOnThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sample, SampleOnThreads, ::testing::Values(1, 2, 5));

// With few draws, threads share rows. With many draws, each thread takes whole rows.
TEST_P(SampleOnThreads, EqualsTheNaiveDraw) {
  constexpr uint64_t kSeed = 4711;
  std::mt19937_64 random(kSeed);
  ThreadPool pool(GetParam());
  SampleScratch scratch;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    const auto count = static_cast<int64_t>(random() % 16);
    const auto vocabulary = static_cast<int64_t>(1 + random() % (round % 4 == 0 ? 9000 : 200));
    Draws draws(random, 1 + static_cast<int64_t>(random() % 4), count, vocabulary);
    const std::vector<float> logits_before = draws.logits;
    RunSample(pool, scratch, draws.args());
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(draws.tokens[i], draws.Expected(i)) << i;
    EXPECT_EQ(std::memcmp(logits_before.data(), draws.logits.data(),
                          logits_before.size() * sizeof(float)),
              0);
  }
}

TEST_P(SampleOnThreads, ACapturedSampleReadsItsDrawsAnew) {
  ThreadPool pool(GetParam());
  const CpuOps ops(PlainKernels(), pool);
  CpuStream stream(pool);
  std::mt19937_64 random(5);
  Draws draws(random, 2, 3, 1000);
  draws.additions.resize(8);
  stream.BeginCapture();
  ops.Sample(stream, draws.args());
  const auto graph = stream.EndCapture();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (size_t i = 0; i < draws.draws.size(); ++i) {
      draws.draws[i] = {.row = static_cast<int32_t>((seed + i) % 3) - 1,
                        .rule = RandomDrawRule(random),
                        .key = {seed, 0, i}};
      draws.first_addition[i + 1] = draws.first_addition[i] + static_cast<int32_t>(random() % 3);
    }
    stream.Launch(*graph);
    for (size_t i = 0; i < draws.draws.size(); ++i) EXPECT_EQ(draws.tokens[i], draws.Expected(i));
  }
}

TEST(Sample, WithoutAdditionsNoListIsRead) {
  ThreadPool pool(2);
  SampleScratch scratch;
  std::mt19937_64 random(6);
  Draws draws(random, 1, 1, 3000);
  draws.draws[0].row = 0;
  draws.first_addition = {0, 0};
  SampleArgs args = draws.args();
  args.first_addition = nullptr;
  args.additions = nullptr;
  RunSample(pool, scratch, args);
  EXPECT_EQ(draws.tokens[0], draws.Expected(0));
}

TEST(FeedDrawnTokens, ReplacesTheTokensThatAnEarlierStepDrew) {
  ThreadPool pool(1);
  const CpuOps ops(PlainKernels(), pool);
  CpuStream stream(pool);
  const std::vector<TokenId> drawn = {70, kDrawNotANumber, 90};
  const std::vector<int32_t> source = {-1, 2, 0, 1, -1};
  std::vector<int32_t> token_ids = {1, 2, 3, 4, 5};
  ops.FeedDrawnTokens(
      stream,
      {.drawn = drawn.data(), .source = source.data(), .token_ids = token_ids.data(), .tokens = 5});
  EXPECT_EQ(token_ids, (std::vector<int32_t>{1, 90, 70, 0, 5}));
}

}  // namespace
}  // namespace baton
