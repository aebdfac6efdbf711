// Some sequences that a runner continues, one step after the other or two steps in flight.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "model/model_runner.h"
#include "tests/model/tiny_model.h"

namespace baton {

using Rows = std::vector<std::vector<float>>;

inline constexpr int32_t kSequences = 3;
inline constexpr int32_t kSteps = 24;

inline TokenDraw DrawOf(int32_t sequence, int32_t position) {
  TokenDraw draw;
  draw.temperature = sequence == 0 ? 0.0f : 1.5f;
  draw.top_k = sequence == 1 ? 30 : 0;
  draw.key = {.seed = static_cast<uint64_t>(sequence),
              .sample = 0,
              .position = static_cast<uint64_t>(position)};
  return draw;
}

// Output of kSequences sequences: prompts of different lengths in one step, then one token per
// step.
struct Said {
  std::vector<std::vector<TokenId>> tokens = std::vector<std::vector<TokenId>>(kSequences);
  Rows logits;  // of every draw
  bool operator==(const Said&) const = default;
};

class Conversation {
 public:
  explicit Conversation(TinyRunner& runner) : runner_(runner) {
    for (int32_t s = 0; s < kSequences; ++s) prompts_.push_back(TinyTokens(10 + 5 * s, s));
  }

  // `known`: the step's input tokens; null: the tokens of the step before, which is still running.
  absl::StatusOr<StepId> Submit(int32_t step, const std::vector<std::vector<TokenId>>* known,
                                StepId before, std::function<int32_t()> wanted = nullptr) {
    std::vector<TokenDraw> draws;
    std::vector<TokenId> fed(kSequences, 0);
    for (int32_t s = 0; s < kSequences; ++s) draws.push_back(DrawOf(s, Begin(s, step) + 1));
    StepInput input;
    for (int32_t s = 0; s < kSequences; ++s) {
      if (step > 0 && known != nullptr) fed[s] = (*known)[s][step - 1];
      const auto tokens = step == 0 ? std::span<const TokenId>(prompts_[s])
                                    : std::span<const TokenId>(fed).subspan(s, 1);
      StepChunk chunk = runner_.Chunk(s, tokens, step == 0 ? 0 : Begin(s, step), 1);
      chunk.draws = std::span(draws).subspan(s, 1);
      chunk.keeps_logits = true;
      if (step > 0 && known == nullptr) chunk.token_from = DrawnBy{.step = before, .draw = s};
      input.chunks.push_back(chunk);
    }
    input.wanted = std::move(wanted);
    return runner_.runner->Submit(input);
  }
  void Collect(StepId id, Said& said) {
    const auto result = runner_.runner->Collect(id);
    ASSERT_TRUE(result.ok()) << result.status();
    for (int32_t s = 0; s < kSequences; ++s) {
      said.tokens[s].push_back(*result->drawn[s]);
      const auto row = runner_.runner->Logits(id, s);
      said.logits.emplace_back(row.begin(), row.end());
    }
  }

 private:
  int32_t Begin(int32_t sequence, int32_t step) const {
    return static_cast<int32_t>(prompts_[sequence].size()) + step - 1;
  }
  TinyRunner& runner_;
  std::vector<std::vector<TokenId>> prompts_;
};

inline Said OneAfterTheOther(TinyRunner& runner) {
  Conversation conversation(runner);
  Said said;
  for (int32_t step = 0; step < kSteps; ++step) {
    conversation.Collect(*conversation.Submit(step, &said.tokens, StepId(0)), said);
  }
  return said;
}
inline Said OneAfterTheOther(const TinyModel& model, const TinyPool& pool) {
  TinyRunner runner(model, pool);
  return OneAfterTheOther(runner);
}

// Each step takes its tokens from the one before, which still runs.
inline Said TwoInFlight(TinyRunner& runner) {
  Conversation conversation(runner);
  Said said;
  StepId before = *conversation.Submit(0, nullptr, StepId(0));
  for (int32_t step = 1; step < kSteps; ++step) {
    const StepId next = *conversation.Submit(step, nullptr, before);
    conversation.Collect(before, said);
    before = next;
  }
  conversation.Collect(before, said);
  return said;
}

}  // namespace baton
