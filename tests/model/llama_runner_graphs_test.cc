// Which graph a decode step replays, on a CPU. tests/cuda/shared_graph_test.cc has graphs with
// shared prefixes.
#include <gtest/gtest.h>

#include <vector>

#include "model/llama/llama_runner.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

TEST(LlamaRunnerGraphs, ACpuReadsTheKvOfEachRow) {
  constexpr int32_t kRows = LlamaRunner::kLeastSharingRows;
  const TinyModel model("q4_1");
  TinyRunner runner(model, {.graph_buckets = {1, kRows}});
  EXPECT_FALSE(runner.runner->shares_prefixes());
  const std::vector<TokenId> tokens = TinyTokens(kRows, 58);
  StepInput input;
  for (int32_t s = 0; s < kRows; ++s) {
    input.chunks.push_back(runner.Chunk(s, std::span(tokens).subspan(s, 1), 0, 1));
  }
  ASSERT_TRUE(runner.Run(input).ok());
  const RunnerCounters counters = runner.runner->counters();
  EXPECT_EQ(counters.graph_replays, 1);
  EXPECT_EQ(counters.sharing_replays, 0);
}

TEST(LlamaRunnerGraphs, ABatchBeyondTheLargestGraphIsEnqueued) {
  const TinyModel model("q4_1");
  TinyRunner runner(model, {.graph_buckets = {1, 2}});
  const std::vector<TokenId> tokens = TinyTokens(3, 58);
  for (int32_t rows = 1; rows <= 3; ++rows) {
    StepInput input;
    for (int32_t s = 0; s < rows; ++s) {
      input.chunks.push_back(runner.Chunk(s, std::span(tokens).subspan(s, 1), 0, 1));
    }
    ASSERT_TRUE(runner.Run(input).ok());
  }
  const RunnerCounters counters = runner.runner->counters();
  EXPECT_EQ(counters.graph_replays, 2);
  EXPECT_EQ(counters.eager_steps, 1);
}

}  // namespace
}  // namespace baton
