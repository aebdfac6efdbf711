// StepBuffers::Check.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/model/step_buffers_fixture.h"

namespace baton {
namespace {

TEST_F(StepBuffersTest, AStepThatDoesNotFitIsRefusedWithValueAndLimit) {
  const std::vector<TokenId> tokens = {5, 6, 7};
  const std::vector<BlockId> table = {BlockId(9), BlockId(2)};
  const StepChunk good{.tokens = tokens, .begin_slot = 3, .block_table = table};
  const auto refused = [&](const auto& change) {
    StepInput input;
    input.chunks.push_back(good);
    input.chunks.push_back(good);
    change(input.chunks[1]);
    const absl::Status status = buffers_->Check(input);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  const auto refused_runs = [&](const std::vector<SlotRun>& runs) {
    return refused([&](StepChunk& chunk) { chunk.runs = runs; });
  };
  StepInput ordinary;
  ordinary.chunks.push_back(good);
  EXPECT_TRUE(buffers_->Check(ordinary).ok());
  EXPECT_EQ(refused([](StepChunk& chunk) { chunk.segment = 2; }),
            "segment 2, adapter 0: only 0 is supported");
  const std::vector<RowPosition> positions(2);
  EXPECT_EQ(refused([&](StepChunk& chunk) { chunk.positions = positions; }),
            "2 positions for 3 tokens");
  const std::vector<float> floats(3 * model_.config.hidden);
  EXPECT_EQ(
      refused([&](StepChunk& chunk) { chunk.embeddings = std::span(floats).first(7); }),
      absl::StrCat("7 values of embeddings for 3 tokens of ", model_.config.hidden, " values"));
  EXPECT_EQ(refused([&](StepChunk& chunk) { chunk.embeddings = floats; }),
            "a step has 3 rows of embeddings, the limit is 2");
  EXPECT_EQ(refused_runs({{0, 9}, {3, 6}}),
            "a run of slots [0, 9) with tile origin 0 does not fit a sequence of 8 slots");
  EXPECT_EQ(refused_runs({{-1, 2}, {3, 6}}),
            "a run of slots [-1, 2) with tile origin 0 does not fit a sequence of 8 slots");
  EXPECT_EQ(refused_runs({{2, 1}, {3, 6}}),
            "a run of slots [2, 1) with tile origin 0 does not fit a sequence of 8 slots");
  EXPECT_EQ(refused_runs({{1, 2, 2}, {3, 6}}),
            "a run of slots [1, 2) with tile origin 2 does not fit a sequence of 8 slots");
  EXPECT_EQ(refused_runs({{0, 7}}),
            "the last run has slots [0, 7); it must end with the chunk's [3, 6)");
  EXPECT_EQ(refused_runs({{4, 6}}),
            "the last run has slots [4, 6); it must end with the chunk's [3, 6)");
  EXPECT_EQ(refused_runs({{0, 1}, {1, 2}, {2, 3}, {6, 7}, {7, 8}, {3, 6}}),
            "a step has 5 visible runs beyond one a chunk, the limit is 4");
  EXPECT_EQ(refused_runs({{0, 1, 0, 1}, {1, 2, 0, 2}, {2, 6, 0, 3}}),
            "a step has 9 shifted queries, the limit is 8");
}

}  // namespace
}  // namespace baton
