#include "model/step_rows.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(StepRows, EndWithTheLastChunkThatIsWantedAndNeverGrow) {
  const std::vector<TokenId> tokens(9);
  StepInput input;
  for (const int32_t count : {1, 3, 5}) {
    input.chunks.push_back(
        {.tokens = std::span(tokens).first(count), .block_table = {}, .logit_rows = count / 2});
  }
  int32_t wanted = 3;
  input.wanted = [&] { return wanted; };
  StepRows rows = StepRows::Tokens(input);
  StepRows logit_rows = StepRows::Logits(input);
  const std::vector<TokenDraw> draws(3);
  input.chunks[1].draws = draws;
  input.chunks[2].draws = std::span(draws).first(1);
  StepRows drawn = StepRows::Draws(input, input.wanted);
  EXPECT_EQ(drawn.Rows(), 4);
  EXPECT_EQ(rows.Count(), 9);
  EXPECT_EQ(logit_rows.Count(), 3);
  wanted = 2;
  EXPECT_EQ(rows.Count(), 4);
  EXPECT_EQ(rows.most(), 9);
  EXPECT_EQ(drawn.Rows(), 3);
  EXPECT_EQ(logit_rows.Count(), 1);
  wanted = 1;
  EXPECT_EQ(logit_rows.Count(), 0);
  wanted = 3;
  EXPECT_EQ(rows.Count(), 4);
  wanted = 0;
  EXPECT_EQ(rows.Count(), 0);
}

TEST(StepRows, ShiftedQueriesAreOfEveryTokenAndShift) {
  const std::vector<TokenId> tokens(9);
  const std::vector<SlotRun> runs = {{0, 3, 0, 5}, {3, 4}, {4, 6, 4, -2}, {6, 9, 6, 5}};
  StepInput input;
  input.chunks.push_back(
      {.tokens = std::span(tokens).first(3), .begin_slot = 6, .block_table = {}, .runs = runs});
  input.chunks.push_back({.tokens = tokens, .block_table = {}});
  input.chunks.push_back(
      {.tokens = std::span(tokens).first(1), .begin_slot = 8, .block_table = {}, .runs = runs});
  int32_t wanted = 3;
  input.wanted = [&] { return wanted; };
  StepRows rows = StepRows::ShiftedQueries(input, input.wanted);
  EXPECT_EQ(rows.Count(), 8);
  wanted = 2;
  EXPECT_EQ(rows.Count(), 6);
  input.chunks = {input.chunks[1]};
  input.wanted = []() -> int32_t {
    ADD_FAILURE() << "nothing to ask about";
    return 0;
  };
  EXPECT_EQ(StepRows::ShiftedQueries(input, input.wanted).Count(), 0);
}

TEST(StepRows, AreAllWantedWithoutADemand) {
  const std::vector<TokenId> tokens(9);
  StepInput input;
  input.chunks.push_back({.tokens = tokens, .block_table = {}, .logit_rows = 1});
  EXPECT_EQ(StepRows::Tokens(input).Count(), 9);
  EXPECT_EQ(StepRows::Fixed(4).Count(), 4);
}

}  // namespace
}  // namespace baton
