#include "kernels/cpu/sample.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_stream.h"
#include "tests/kernels/naive_draw.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A step's draws in the memory format of the Sample op.
struct Draws {
  Draws(std::mt19937_64& random, int64_t rows, int64_t count, int64_t vocabulary)
      : vocabulary(vocabulary) {
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> logit_row = RandomLogits(random, vocabulary);
      logits.insert(logits.end(), logit_row.begin(), logit_row.end());
    }
    for (int64_t i = 0; i < count; ++i) {
      const bool skipped = random() % 8 == 0;
      draws.push_back({.row = skipped ? -1 : static_cast<int32_t>(random() % rows),
                       .rule = RandomDrawRule(random),
                       .key = {random(), static_cast<uint32_t>(random() % 3), random() % 5000}});
      for (uint64_t a = random() % 3; a > 0; --a) {
        additions.push_back({static_cast<TokenId>(random() % vocabulary),
                             random() % 2 == 0 ? -kInfinity : static_cast<float>(random() % 20)});
      }
      first_addition.push_back(static_cast<int32_t>(additions.size()));
    }
    tokens.assign(count, 12345);
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

  TokenId Expected(int64_t i) const {
    if (draws[i].row < 0) return kDrawSkipped;
    const auto row = logits.begin() + draws[i].row * vocabulary;
    std::vector<float> adjusted(row, row + vocabulary);
    for (int32_t a = first_addition[i]; a < first_addition[i + 1]; ++a) {
      adjusted[additions[a].token] += additions[a].value;
    }
    return NaiveDraw(adjusted, draws[i].rule, draws[i].key);
  }

  int64_t vocabulary;
  std::vector<float> logits;
  std::vector<RowDraw> draws;
  std::vector<LogitAddition> additions;
  std::vector<int32_t> first_addition = {0};
  std::vector<TokenId> tokens;
};

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
