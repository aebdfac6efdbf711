#include "model/draw_buffers.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "kernels/create_device.h"
#include "model/host_draws.h"

namespace baton {
namespace {

constexpr int64_t kVocabulary = 500;

// Random logits and draws of a step.
struct RandomStep {
  explicit RandomStep(std::mt19937_64& random) {
    const size_t count = 1 + random() % 5;
    chunks.resize(count);
    for (Chunk& chunk : chunks) {
      chunk.logit_rows = static_cast<int32_t>(random() % 3);
      if (chunk.logit_rows == 0) continue;
      chunk.draws.resize(random() % 40 == 0 ? 100 : random() % 4);
      chunk.additions.resize(chunk.draws.size());
      for (size_t i = 0; i < chunk.draws.size(); ++i) {
        TokenDraw& draw = chunk.draws[i];
        draw.row = static_cast<int32_t>(random() % chunk.logit_rows);
        draw.temperature = static_cast<float>(random() % 3) * 0.7f;
        draw.top_k = random() % 3 == 0 ? 20 : 0;
        draw.top_p = random() % 3 == 0 ? 0.9f : 1.0f;
        draw.key = {.seed = random(), .sample = 0, .position = random() % 100};
        for (uint64_t a = random() % 4; a > 0; --a) {
          chunk.additions[i].push_back(
              {static_cast<TokenId>(random() % kVocabulary),
               random() % 2 ? 4.0f : -std::numeric_limits<float>::infinity()});
        }
        draw.additions = chunk.additions[i];
      }
    }
    int64_t rows = 0;
    for (const Chunk& chunk : chunks) {
      input.chunks.push_back({.tokens = chunk.tokens,
                              .block_table = {},
                              .logit_rows = chunk.logit_rows,
                              .draws = chunk.draws});
      rows += chunk.logit_rows;
    }
    logits.resize(static_cast<size_t>(rows * kVocabulary));
    for (float& logit : logits) logit = static_cast<float>(random() % 5000) * 0.003f;
    if (rows > 0 && random() % 5 == 0) {
      logits[random() % logits.size()] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  std::span<const float> Row(int32_t row) const {
    return std::span(logits).subspan(static_cast<size_t>(row * kVocabulary), kVocabulary);
  }

  struct Chunk {
    std::vector<TokenId> tokens = {1};
    int32_t logit_rows = 0;
    std::vector<TokenDraw> draws;
    std::vector<std::vector<LogitAddition>> additions;
  };
  std::vector<Chunk> chunks;
  std::vector<float> logits;
  StepInput input;
};

class DrawBuffersOn : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Device> device_ = *CreateDevice({.name = GetParam(), .threads = 2});
  std::unique_ptr<Stream> stream_ = device_->CreateStream();
  DrawBuffers buffers_{*device_};
};
INSTANTIATE_TEST_SUITE_P(DrawBuffers, DrawBuffersOn, ::testing::Values("cpu", "cpu-async"),
                         [](const auto& info) {
                           return std::string(info.param) == "cpu" ? "Inline" : "Asynchronous";
                         });

// Always keeps two steps in flight.
TEST_P(DrawBuffersOn, DrawTheTokensOfTheHost) {
  constexpr uint64_t kSeed = 20261123;
  std::mt19937_64 random(kSeed);
  HostDraws host;
  std::vector<std::unique_ptr<RandomStep>> steps;
  std::vector<StepRows> wanted(400);
  const auto check = [&](size_t index) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " step " << index);
    const RandomStep& step = *steps[index];
    const auto row = [&](int32_t row) { return step.Row(row); };
    const auto expected = host.Draw(step.input, row);
    const auto drawn = buffers_.Drawn(static_cast<int>(index % kStepSlots), row);
    ASSERT_EQ(drawn.size(), expected.size());
    for (size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(drawn[i], expected[i]) << i;
  };
  const auto ran = device_->CreateEvent();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int slot = static_cast<int>(i % kStepSlots);
    steps.push_back(std::make_unique<RandomStep>(random));
    if (i % kStepSlots == 0 && i > 0) {
      stream_->Synchronize();
      check(i - 2);
      check(i - 1);
    }
    const RandomStep& step = *steps.back();
    wanted[i] = StepRows::Draws(step.input, step.input.wanted);
    ASSERT_TRUE(buffers_.Upload(step.input, slot, nullptr, *stream_).ok());
    buffers_.Sample(step.logits.data(), kVocabulary, slot, wanted[i], *stream_);
  }
  stream_->Synchronize();
}

TEST_P(DrawBuffersOn, DrawsOfUnwantedChunksAreLeftOut) {
  const std::vector<float> logits = {0, 5, 0, 0};
  const std::vector<TokenDraw> draws(2);
  const std::vector<TokenId> tokens = {1};
  StepInput input;
  for (int i = 0; i < 2; ++i) {
    input.chunks.push_back({.tokens = tokens, .block_table = {}, .logit_rows = 1, .draws = draws});
  }
  input.wanted = [] { return 1; };
  StepRows wanted = StepRows::Draws(input, input.wanted);
  ASSERT_TRUE(buffers_.Upload(input, 0, nullptr, *stream_).ok());
  buffers_.Sample(logits.data(), 2, 0, wanted, *stream_);
  stream_->Synchronize();
  const auto drawn = buffers_.Drawn(0, [](int32_t) { return std::span<const float>(); });
  ASSERT_EQ(drawn.size(), 4u);
  EXPECT_TRUE(drawn[0].ok() && drawn[1].ok());
  EXPECT_TRUE(absl::IsCancelled(drawn[2].status()) && absl::IsCancelled(drawn[3].status()));
}

// A step uses the tokens that the previous step drew, whether the device buffers must grow or not.
TEST_P(DrawBuffersOn, TokensOfTheStepBeforeAreFed) {
  TokenDraw greedy;
  greedy.temperature = 0;
  const std::vector<TokenId> two = {8, 9};
  for (const size_t many : {2u, 3000u}) {
    const std::vector<float> logits = {0, 0, 0, 9, 0, 0};  // row 0 draws token 0, row 1 token 1
    std::vector<TokenDraw> first(2, greedy);
    first[1].row = 1;
    StepInput before;
    before.chunks.push_back({.tokens = two, .block_table = {}, .logit_rows = 2, .draws = first});
    StepRows wanted = StepRows::Draws(before, before.wanted);
    ASSERT_TRUE(buffers_.Upload(before, 0, nullptr, *stream_).ok());
    buffers_.Sample(logits.data(), 2, 0, wanted, *stream_);

    const std::vector<TokenDraw> draws(many, greedy);
    StepInput next;
    next.chunks.push_back({.tokens = two, .block_table = {}, .logit_rows = 1, .draws = draws});
    next.chunks.push_back({.tokens = std::span(two).first(1),
                           .block_table = {},
                           .token_from = DrawnBy{.step = StepId(1), .draw = 1}});
    next.chunks.push_back({.tokens = std::span(two).first(1),
                           .block_table = {},
                           .token_from = DrawnBy{.step = StepId(1), .draw = 0}});
    std::vector<int32_t> token_ids = {8, 9, 7, 7};
    ASSERT_TRUE(buffers_.Upload(next, 1, token_ids.data(), *stream_).ok());
    stream_->Synchronize();
    EXPECT_EQ(token_ids, (std::vector<int32_t>{8, 9, 1, 0}));
  }
}

}  // namespace
}  // namespace baton
