#include "model/draw_buffers.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
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
  // Room for the steps of the tests, but not for all of their additions.
  std::unique_ptr<DrawBuffers> buffers_ = *DrawBuffers::Create(600, 600, *device_);

  // Enqueues what comes before the ops of a step.
  absl::Status Upload(const StepInput& input, int slot, int32_t* token_ids) {
    const absl::Status filled = buffers_->Fill(input, slot, /*graph_rows=*/0, *stream_);
    if (!filled.ok()) return filled;
    InputCopies copies;
    buffers_->Upload(slot, copies);
    copies.Enqueue(device_->ops(), *stream_);
    buffers_->Feed(slot, token_ids, *stream_);
    return absl::OkStatus();
  }
  void Sample(const float* logits, int64_t vocabulary, int slot, StepRows& wanted) {
    buffers_->Sample(logits, vocabulary, slot, wanted, *stream_);
    buffers_->Fetch(slot, *stream_);
  }
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
    const auto drawn = buffers_->Drawn(static_cast<int>(index % kStepSlots), row);
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
    ASSERT_TRUE(Upload(step.input, slot, nullptr).ok());
    Sample(step.logits.data(), kVocabulary, slot, wanted[i]);
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
  ASSERT_TRUE(Upload(input, 0, nullptr).ok());
  Sample(logits.data(), 2, 0, wanted);
  stream_->Synchronize();
  const auto drawn = buffers_->Drawn(0, [](int32_t) { return std::span<const float>(); });
  ASSERT_EQ(drawn.size(), 4u);
  EXPECT_TRUE(drawn[0].ok() && drawn[1].ok());
  EXPECT_TRUE(absl::IsCancelled(drawn[2].status()) && absl::IsCancelled(drawn[3].status()));
}

// A step uses the tokens that the previous step drew.
TEST_P(DrawBuffersOn, TokensOfTheStepBeforeAreFed) {
  TokenDraw greedy;
  greedy.temperature = 0;
  const std::vector<TokenId> two = {8, 9};
  for (const size_t many : {2u, 500u}) {
    const std::vector<float> logits = {0, 0, 0, 9, 0, 0};  // row 0 draws token 0, row 1 token 1
    std::vector<TokenDraw> first(2, greedy);
    first[1].row = 1;
    StepInput before;
    before.chunks.push_back({.tokens = two, .block_table = {}, .logit_rows = 2, .draws = first});
    StepRows wanted = StepRows::Draws(before, before.wanted);
    ASSERT_TRUE(Upload(before, 0, nullptr).ok());
    Sample(logits.data(), 2, 0, wanted);

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
    ASSERT_TRUE(Upload(next, 1, token_ids.data()).ok());
    stream_->Synchronize();
    EXPECT_EQ(token_ids, (std::vector<int32_t>{8, 9, 1, 0}));
  }
}

// The buffers have room for 16 additions. Steps with more take memory of their own, also while the
// step before is in flight.
TEST_P(DrawBuffersOn, AStepMayHaveManyAdditions) {
  constexpr int64_t kTokens = 20'000;
  buffers_ = *DrawBuffers::Create(1, 1, *device_);
  const std::vector<float> logits(kTokens, 1.0f);
  const std::vector<TokenId> tokens = {1};
  const std::vector<int32_t> counts = {3, 40, 16, 17, 199, 1, 3000, 19'000};
  std::vector<std::vector<LogitAddition>> additions(counts.size());
  std::vector<StepInput> inputs(counts.size());
  std::vector<StepRows> wanted(counts.size());
  const auto check = [&](size_t step) {
    const auto drawn =
        buffers_->Drawn(step % kStepSlots, [&](int32_t) { return std::span(logits); });
    ASSERT_EQ(drawn.size(), 1u);
    EXPECT_EQ(drawn[0], absl::StatusOr<TokenId>(counts[step]))
        << "the first token without an addition";
  };
  for (size_t step = 0; step < counts.size(); ++step) {
    for (TokenId token = 0; token < counts[step]; ++token) {
      additions[step].push_back({token, -1.0f});
    }
    TokenDraw draw;
    draw.temperature = 0;
    draw.additions = additions[step];
    StepInput& input = inputs[step];
    input.chunks.push_back(
        {.tokens = tokens, .block_table = {}, .logit_rows = 1, .draws = std::span(&draw, 1)});
    wanted[step] = StepRows::Draws(input, input.wanted);
    if (step % kStepSlots == 0 && step > 0) {
      stream_->Synchronize();
      check(step - 2);
      check(step - 1);
    }
    ASSERT_TRUE(Upload(input, step % kStepSlots, nullptr).ok());
    Sample(logits.data(), kTokens, step % kStepSlots, wanted[step]);
  }
  stream_->Synchronize();
  check(counts.size() - 2);
  check(counts.size() - 1);
}

// As the runner does it: a graph for more rows than the step has draws, with the feed inside. A
// step with more draws than rows draws behind its graph.
TEST_P(DrawBuffersOn, AGraphFeedsAndDraws) {
  constexpr int64_t kRows = 4;
  const std::vector<float> logits = {0, 9, 9, 0, 0, 0, 0, 0};  // of two tokens in each row
  std::vector<int32_t> token_ids(kRows, 7);
  stream_->BeginCapture();
  buffers_->EnqueueFeed(kRows, token_ids.data(), *stream_);
  buffers_->EnqueueGraphDraws(kRows, logits.data(), 2, *stream_);
  const std::unique_ptr<OpGraph> graph = stream_->EndCapture();
  TokenDraw greedy;
  greedy.temperature = 0;
  const std::vector<TokenId> tokens = {7};
  const auto chunk_of = [&](std::span<const TokenDraw> draws, std::optional<int32_t> from) {
    StepChunk chunk = {.tokens = tokens, .block_table = {}, .logit_rows = 1, .draws = draws};
    if (from) chunk.token_from = DrawnBy{.step = StepId(1), .draw = *from};
    return chunk;
  };
  const std::vector<TokenDraw> one(1, greedy);
  const std::vector<TokenDraw> many(5, greedy);
  // Row 0 draws token 1, row 1 token 0.
  struct Step {
    std::vector<StepChunk> chunks;
    std::vector<TokenId> drawn;
    std::vector<int32_t> fed;
  };
  const std::vector<Step> steps = {
      {{chunk_of(one, {}), chunk_of(one, {})}, {1, 0}, {7, 7, 7, 7}},
      {{chunk_of(one, 1), chunk_of(one, 0)}, {1, 0}, {0, 1, 7, 7}},
      {{chunk_of(one, 0), chunk_of(many, 0)}, {1, 0, 0, 0, 0, 0}, {1, 1, 7, 7}},
      {{chunk_of(many, 5), chunk_of(one, 0)}, {1, 1, 1, 1, 1, 0}, {0, 1, 7, 7}},
      {{chunk_of(one, 4)}, {1}, {1, 1, 7, 7}},
      {{chunk_of({}, 0)}, {}, {1, 1, 7, 7}}};
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(i);
    const int slot = static_cast<int>(i % kStepSlots);
    StepInput input;
    input.chunks = steps[i].chunks;
    StepRows wanted = StepRows::Draws(input, input.wanted);
    ASSERT_TRUE(buffers_->Fill(input, slot, kRows, *stream_).ok());
    InputCopies copies;
    buffers_->Upload(slot, copies);
    copies.Enqueue(device_->ops(), *stream_);
    stream_->Launch(*graph);
    Sample(logits.data(), 2, slot, wanted);
    stream_->Synchronize();
    const auto drawn = buffers_->Drawn(slot, [](int32_t) { return std::span<const float>(); });
    ASSERT_EQ(drawn.size(), steps[i].drawn.size());
    for (size_t at = 0; at < drawn.size(); ++at) {
      EXPECT_EQ(drawn[at], absl::StatusOr<TokenId>(steps[i].drawn[at])) << at;
    }
    EXPECT_EQ(token_ids, steps[i].fed);
  }
}

}  // namespace
}  // namespace baton
