#include "engine/step_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/chunked_prompt.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST(StepFrames, AChunkSeesTheFrameAndThenItself) {
  SequenceFrame frame;
  frame.blocks = {BlockId(4), BlockId(2)};
  frame.runs = {{.begin = 0, .end = 3}, {.begin = 4, .end = 6, .position_shift = 9}};
  frame.begin_position = 30;
  const std::vector<BlockId> own = {BlockId(8), BlockId(6)};
  const std::vector<TokenId> tokens = {1, 2};
  StepFrames frames;
  std::vector<StepChunk> chunks(2);
  for (StepChunk& chunk : chunks) {
    chunk.tokens = tokens;
    frames.Describe(frame, own, /*begin=*/3, /*block_size=*/4, chunk);
  }
  for (const StepChunk& chunk : chunks) {
    EXPECT_EQ(chunk.begin_slot, 11);
    EXPECT_EQ(chunk.begin_position, 33);
    EXPECT_THAT(chunk.block_table, ElementsAre(BlockId(4), BlockId(2), BlockId(8), BlockId(6)));
    ASSERT_EQ(chunk.runs.size(), 3u);
    EXPECT_EQ(chunk.runs[0].end, 3) << "the slot behind a part is garbage";
    EXPECT_EQ(chunk.runs[1].tile_origin, 4);
    EXPECT_EQ(chunk.runs[1].position_shift, 9);
    EXPECT_EQ(chunk.runs[2].begin, 8);
    EXPECT_EQ(chunk.runs[2].end, 13);
    EXPECT_EQ(chunk.runs[2].tile_origin, 8);
    EXPECT_EQ(chunk.runs[2].position_shift, 0);
  }
  EXPECT_EQ(ShiftsOf(frame), 1);
  frame.runs.push_back({.begin = 6, .end = 7, .position_shift = 9});
  EXPECT_EQ(ShiftsOf(frame), 1) << "equal shifts share their queries";
}

TEST(StepFrames, RowsOfARepairHaveTheirPlacesInTheFrame) {
  SequenceFrame frame;
  frame.blocks = {BlockId(4), BlockId(2), BlockId(8)};
  frame.runs = {{.begin = 0, .end = 3}, {.begin = 4, .end = 10, .position_shift = 9}};
  frame.rows = {{.slot = 1, .run = 0, .position = 1},
                {.slot = 4, .run = 1, .position = 3},
                {.slot = 9, .run = 1, .position = 8}};
  frame.compares = true;
  const std::vector<TokenId> tokens = {1, 2};
  StepFrames frames;
  StepChunk chunk{.tokens = tokens, .block_table = {}};
  frames.Describe(frame, std::vector<BlockId>{BlockId(30)}, /*begin=*/1, /*block_size=*/4, chunk);
  EXPECT_THAT(chunk.block_table, ElementsAre(BlockId(4), BlockId(2), BlockId(8)));
  ASSERT_EQ(chunk.runs.size(), 2u);
  EXPECT_EQ(chunk.runs[1].end, 10);
  ASSERT_EQ(chunk.places.size(), 2u);
  EXPECT_EQ(chunk.places[0].slot, 4);
  EXPECT_EQ(chunk.places[1].slot, 9);
  EXPECT_EQ(chunk.places[1].run, 1);
  EXPECT_THAT(chunk.positions, ElementsAre(RowPosition{3, 3, 3}, RowPosition{8, 8, 8}));
  EXPECT_TRUE(chunk.compares);
}

// Each token of the question has two shifted queries.
TEST(StepFrames, StepsKeepWithinTheLimitOfShiftedQueries) {
  for (const bool asynchronous : {false, true}) {
    for (const int32_t most : {2, 5, 100}) {
      WorkerBench bench(
          {.num_blocks = 300,
           .asynchronous = asynchronous,
           .steps_in_flight = asynchronous ? 2 : 1,
           .prompt_parts = {
               .cache = {.share = 0.5}, .piece_tokens = 256, .max_shifted_queries = most}});
      const ChunkedPrompt prompt =
          PromptOf("sys", {"aa", "bbb", "cccc"}, "a question of 25 tokens...",
                   {.positions = ChunkPositions::kSequential});
      std::vector<std::shared_ptr<SinkRecord>> records;
      for (int i = 0; i < 3; ++i) records.push_back(bench.Generate(ChunkedRequest(prompt, 6)));
      bench.Run();
      for (const auto& record : records) {
        EXPECT_EQ(record->tokens, ChunkedContinuation(bench.runner, prompt, 6));
      }
      int32_t longest = 0;
      for (const std::vector<int32_t>& step : bench.runner.counts) {
        for (const int32_t count : step) longest = std::max(longest, count);
      }
      EXPECT_EQ(longest, most == 2 ? 4 : most == 5 ? 4 : 26) << "a chunk has 4 tokens";
      bench.ExpectAllBlocksHome();
    }
  }
}

TEST(StepFrames, APromptWithMoreShiftsThanAStepIsRefused) {
  WorkerBench bench({.prompt_parts = {.cache = {}, .piece_tokens = 256, .max_shifted_queries = 1}});
  const ChunkedPrompt prompt = PromptOf("sys", {"aa", "bbb", "cccc"}, "question",
                                        {.positions = ChunkPositions::kSequential});
  const auto record = bench.Generate(ChunkedRequest(prompt, 6));
  EXPECT_EQ(*record->error,
            absl::InvalidArgumentError(
                "the chunks have 2 different position shifts; at most 1 are allowed"));
}

}  // namespace
}  // namespace baton
