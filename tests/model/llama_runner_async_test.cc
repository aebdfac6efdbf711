// Compares two steps in flight on an asynchronous device with one step at a time on an inline one.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "model/llama/llama_runner.h"
#include "tests/model/conversation.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

TEST(LlamaRunnerAsync, TwoStepsInFlightGiveTheSameTokensAsOneAfterTheOther) {
  for (const char* name : {"q4_1", "f32", "window-q4_0"}) {
    const TinyModel inline_model(name);
    const TinyModel model(name, 2, /*asynchronous=*/true);
    for (const bool graph : {false, true}) {
      const TinyPool pool{.graph = graph};
      const Said expected = OneAfterTheOther(inline_model, pool);
      EXPECT_EQ(OneAfterTheOther(model, pool), expected) << "one in flight";
      TinyRunner runner(model, pool);
      EXPECT_EQ(runner.runner->max_in_flight(), 2);
      const Said said = TwoInFlight(runner);
      EXPECT_EQ(said, expected) << name << (graph ? " graphs" : " eager");
      EXPECT_GT(said.tokens[1], std::vector<TokenId>(kSteps, -1));
    }
  }
}

TEST(LlamaRunnerAsync, AStepIsDroppedOnTheStreamsThreadAndItsTokensAreFedAsZero) {
  const TinyModel model("q8_0", 2, /*asynchronous=*/true);
  for (const bool graph : {false, true}) {
    TinyRunner runner(model, {.graph = graph});
    Conversation conversation(runner);
    Said said;
    conversation.Collect(*conversation.Submit(0, nullptr, StepId(0)), said);
    const auto engine_thread = std::this_thread::get_id();
    std::atomic<bool> elsewhere{true};
    const StepId dropped = *conversation.Submit(1, &said.tokens, StepId(0), [&] {
      elsewhere = elsewhere && std::this_thread::get_id() != engine_thread;
      return 0;
    });
    const StepId next = *conversation.Submit(2, nullptr, dropped);
    EXPECT_TRUE(absl::IsCancelled(runner.runner->Collect(dropped).status()));
    EXPECT_TRUE(elsewhere);
    Said fed;
    conversation.Collect(next, fed);

    // The same with the token given, on a runner without the dropped step.
    const TinyModel inline_model("q8_0");
    TinyRunner other(inline_model, {.graph = graph});
    Conversation expected(other);
    Said said_before, given;
    expected.Collect(*expected.Submit(0, nullptr, StepId(0)), said_before);
    EXPECT_EQ(said_before, said);
    for (std::vector<TokenId>& tokens : said_before.tokens) tokens.push_back(0);
    // The dropped step wrote nothing to its slots; they contain zeros, as in a new pool.
    expected.Collect(*expected.Submit(2, &said_before.tokens, StepId(0)), given);
    EXPECT_EQ(given, fed);
  }
}

TEST(LlamaRunnerAsync, PollReportsLayersAsTheyAreWritten) {
  const TinyModel model("q8_0", 2, /*asynchronous=*/true);
  TinyRunner runner(model, {});
  std::atomic<int> woken{0};
  runner.runner->set_waker([&] {
    ++woken;
    woken.notify_all();
  });
  const auto tokens = TinyTokens(30, 9);
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 1));
  std::vector<int32_t> told;
  const auto engine_thread = std::this_thread::get_id();
  input.kv_written = [&](int32_t layers, int32_t chunks) {
    EXPECT_EQ(std::this_thread::get_id(), engine_thread);
    EXPECT_EQ(chunks, 1);
    told.push_back(layers);
  };
  // The stream's thread waits after the first layer's write until Poll has reported it.
  std::atomic<bool> first_told{false};
  std::atomic<int> asked{0};
  input.wanted = [&] {
    if (woken >= 1) first_told.wait(false);
    return ++asked, 1;
  };
  const StepId step = *runner.runner->Submit(input);
  for (int seen = woken; seen < 1; seen = woken) woken.wait(seen);
  EXPECT_FALSE(runner.runner->Done(step));
  runner.runner->Poll();
  EXPECT_EQ(told, std::vector<int32_t>{1});
  first_told = true;
  first_told.notify_all();
  ASSERT_TRUE(runner.runner->Collect(step).ok());
  ASSERT_EQ(told.size(), static_cast<size_t>(model.config.layers));
  for (int32_t layer = 0; layer < model.config.layers; ++layer) EXPECT_EQ(told[layer], layer + 1);
}

TEST(LlamaRunnerAsync, CopiesOfBlocksRunBetweenTheStepsAroundThem) {
  const TinyModel model("f32", 2, /*asynchronous=*/true);
  TinyRunner runner(model, {});
  ExpectCopiesRunBetweenSteps(runner);
}

TEST(LlamaRunnerAsync, ARowThatAllowsNoTokenFailsOnlyItself) {
  for (const bool asynchronous : {false, true}) {
    const TinyModel model("q8_0", 2, asynchronous);
    TinyRunner runner(model, {});
    std::vector<LogitAddition> none;
    for (TokenId token = 0; token < model.config.vocabulary; ++token) {
      none.push_back({token, -std::numeric_limits<float>::infinity()});
    }
    std::vector<TokenDraw> draws(2);
    draws[0].additions = none;
    const auto tokens = TinyTokens(5, 1);
    StepInput input;
    input.chunks.push_back(runner.Chunk(0, tokens, 0, 1));
    input.chunks.back().draws = draws;
    const auto result = runner.runner->Collect(*runner.runner->Submit(input));
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->drawn[0].status(),
              absl::InternalError("every logit is -infinity: no token can be chosen"));
    EXPECT_TRUE(result->drawn[1].ok());
  }
}

}  // namespace
}  // namespace baton
