// Traps of CUDA Graphs over a paged KV cache, on the emulated GPU. Each trap has broken another
// implementation. A graph is captured once, and its launches must see everything that changes.
//
// - Blocks are allocated, or the table is uploaded, only where no graph is used. Answers are wrong
//   from the next block boundary on. ATableThatGrowsAtABlockBoundaryIsSeen
// - The graph contains the upload, so each launch restores old entries. NoCopyIsCaptured
// - Graphs have no kernel for a float32 cache: they are switched off, or read an empty cache.
//   ATableThatGrowsAtABlockBoundaryIsSeen/f32
// - The capture fixes a length, a grid or shared memory. OneCaptureServesEveryLength
// - A cleared cache needs a new capture, or keeps old blocks. OtherBlocksNeedNoNewCapture
// - The capture fixes the table's width or the rows' order.
//   RowsMayChangePlacesAndBatchesTheirSize
// - Rows that pad a batch overwrite a slot of a sequence. PaddingDoesNotTouchAnyKv
// - The host changes pinned memory before the launch has read it.
//   AStepDoesNotChangeTheInputsOfTheOneBefore
//
// Other files have the tests of two more traps:
// - A capture allocates memory or waits. EmulatedDriver.ASynchronisationInvalidatesACapture
// - Scratch memory moves after the capture.
//   CudaStreamTest.AWorkspaceIsZeroKeepsItsContentsAndStaysValidWhenItGrows
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "model/llama/llama_runner.h"
#include "tests/common/random_operations.h"
#include "tests/cuda/emulator_faults.h"
#include "tests/cuda/emulator_library.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

using Rows = std::vector<std::vector<float>>;

class GraphTraps : public testing::TestWithParam<KvType> {
 protected:
  static int64_t Captures() { return EmulatorLibrary().counters().captures; }
  static int64_t Launches() { return EmulatorLibrary().counters().graph_launches; }

  // Computes tokens [from, to) one by one. Each step's table has only the blocks that it needs.
  static Rows Decode(TinyRunner& runner, int32_t sequence, std::span<const TokenId> tokens,
                     int32_t from, int32_t to) {
    Rows rows;
    for (int32_t at = from; at < to; ++at) {
      StepInput input;
      input.chunks.push_back(ChunkOf(runner, sequence, tokens, at));
      EXPECT_TRUE(runner.Run(input).ok());
      rows.push_back(runner.Row(0));
    }
    return rows;
  }
  static StepChunk ChunkOf(TinyRunner& runner, int32_t sequence, std::span<const TokenId> tokens,
                           int32_t at) {
    StepChunk chunk = runner.Chunk(sequence, tokens.subspan(at, 1), at, 1);
    const int32_t block_size = runner.layout().block_size();
    chunk.block_table = chunk.block_table.first((at + block_size) / block_size);
    return chunk;
  }
  static void Prefill(TinyRunner& runner, int32_t sequence, std::span<const TokenId> tokens) {
    StepInput input;
    input.chunks.push_back(runner.Chunk(sequence, tokens, 0, 1));
    EXPECT_TRUE(runner.Run(input).ok());
  }

  const TinyModel cpu_{"q4_1"};
  const TinyModel gpu_{GgufFile::Open(TinyModelPath("q4_1")).value(),
                       CreateEmulatedDevice({}, Numerics::kR1)};
};

TEST_P(GraphTraps, ATableThatGrowsAtABlockBoundaryIsSeen) {
  const auto tokens = TinyTokens(30, 3);
  for (const int32_t block_size : {1, 4, 16}) {
    TinyRunner want(cpu_, {.type = GetParam(), .block_size = block_size, .graph = false});
    TinyRunner got(gpu_, {.type = GetParam(), .block_size = block_size, .graph_buckets = {1}});
    for (TinyRunner* runner : {&want, &got}) Prefill(*runner, 3, std::span(tokens).first(6));
    EXPECT_EQ(Decode(got, 3, tokens, 6, 30), Decode(want, 3, tokens, 6, 30)) << block_size;
    EXPECT_EQ(got.runner->counters().graph_replays, 24);
  }
}

TEST_P(GraphTraps, NoCopyIsCaptured) {
  TinyRunner runner(gpu_, {.type = GetParam()});
  const auto tokens = TinyTokens(20, 4);
  Prefill(runner, 0, std::span(tokens).first(10));
  Decode(runner, 0, tokens, 10, 20);
  EXPECT_GT(Captures(), 0);
  EXPECT_EQ(EmulatorLibrary().counters().captured_copies, 0);
}

TEST_P(GraphTraps, OneCaptureServesEveryLength) {
  constexpr int32_t kSegment = 256;  // of attention
  const StepLimits limits = {
      .max_tokens = 300, .max_sequences = 1, .max_logit_rows = 1, .max_context = 288};
  const auto tokens = TinyTokens(kSegment + 3, 5);
  TinyRunner want(cpu_, {.type = GetParam(), .graph = false, .limits = limits});
  TinyRunner got(gpu_, {.type = GetParam(), .limits = limits});
  Prefill(want, 0, std::span(tokens).first(1));
  Prefill(got, 0, std::span(tokens).first(1));
  EXPECT_EQ(Decode(got, 0, tokens, 1, 3), Decode(want, 0, tokens, 1, 3));
  const int64_t captures = Captures();
  for (TinyRunner* runner : {&want, &got}) {
    Prefill(*runner, 0, std::span(tokens).first(kSegment - 2));
  }
  EXPECT_EQ(Decode(got, 0, tokens, kSegment - 2, kSegment + 3),
            Decode(want, 0, tokens, kSegment - 2, kSegment + 3));
  EXPECT_EQ(Captures(), captures);
}

// As after a cleared cache: the same row of the batch gets other blocks, and then the first blocks
// with other contents.
TEST_P(GraphTraps, OtherBlocksNeedNoNewCapture) {
  TinyRunner want(cpu_, {.type = GetParam(), .graph = false});
  TinyRunner got(gpu_, {.type = GetParam(), .graph_buckets = {1}});
  int64_t captures = 0;
  for (const auto& [sequence, seed] : {std::pair(0, 1), std::pair(7, 2), std::pair(0, 3)}) {
    const auto tokens = TinyTokens(24, seed);
    for (TinyRunner* runner : {&want, &got}) {
      Prefill(*runner, sequence, std::span(tokens).first(14));
    }
    EXPECT_EQ(Decode(got, sequence, tokens, 14, 24), Decode(want, sequence, tokens, 14, 24))
        << sequence;
    if (captures == 0) captures = Captures();
  }
  EXPECT_EQ(Captures(), captures);
}

TEST_P(GraphTraps, RowsMayChangePlacesAndBatchesTheirSize) {
  TinyRunner want(cpu_, {.type = GetParam(), .block_size = 4, .graph = false});
  TinyRunner got(gpu_, {.type = GetParam(), .block_size = 4, .graph_buckets = {2, 5}});
  const auto tokens = TinyTokens(40, 6);
  constexpr int32_t kSequences = 5;
  int32_t at[kSequences];  // tokens of each sequence
  for (int32_t s = 0; s < kSequences; ++s) {
    at[s] = 3 + 5 * s;  // tables of different lengths
    for (TinyRunner* runner : {&want, &got}) Prefill(*runner, s, std::span(tokens).first(at[s]));
  }
  const std::vector<std::vector<int32_t>> batches = {
      {0, 4}, {4, 0, 2}, {1}, {3, 2, 1, 0, 4}, {4}, {2, 3}, {0, 1, 2, 3}, {4, 3, 2, 1, 0}};
  for (const std::vector<int32_t>& batch : batches) {
    StepInput step_of_want, step_of_got;
    for (const int32_t s : batch) {
      step_of_want.chunks.push_back(ChunkOf(want, s, tokens, at[s]));
      step_of_got.chunks.push_back(ChunkOf(got, s, tokens, at[s]));
      ++at[s];
    }
    ASSERT_TRUE(want.Run(step_of_want).ok());
    ASSERT_TRUE(got.Run(step_of_got).ok());
    for (size_t row = 0; row < batch.size(); ++row) {
      EXPECT_EQ(got.Row(static_cast<int32_t>(row)), want.Row(static_cast<int32_t>(row)))
          << "sequence " << batch[row] << " in a batch of " << batch.size();
    }
  }
  EXPECT_EQ(got.runner->counters().graph_replays, static_cast<int64_t>(batches.size()));
}

TEST_P(GraphTraps, PaddingDoesNotTouchAnyKv) {
  const auto tokens = TinyTokens(30, 7), others = TinyTokens(30, 8);
  TinyRunner want(cpu_, {.type = GetParam(), .graph = false});
  TinyRunner got(gpu_, {.type = GetParam(), .block_size = 1, .graph_buckets = {16}});
  Prefill(want, 0, std::span(tokens).first(29));
  Prefill(got, 0, std::span(tokens).first(29));
  Prefill(got, 1, std::span(others).first(20));
  Decode(got, 1, others, 20, 26);  // with 15 rows that pad the batch
  EXPECT_EQ(Decode(got, 0, tokens, 29, 30), Decode(want, 0, tokens, 29, 30));
}

// The second step is submitted while nothing of the first has run.
TEST_P(GraphTraps, AStepDoesNotChangeTheInputsOfTheOneBefore) {
  TinyRunner want(cpu_, {.type = GetParam(), .block_size = 4, .graph = false});
  TinyRunner got(gpu_, {.type = GetParam(), .block_size = 4, .graph_buckets = {1}});
  const auto tokens = TinyTokens(40, 9);
  const std::vector<int32_t> prompts = {7, 20};
  for (int32_t s = 0; s < 2; ++s) {
    for (TinyRunner* runner : {&want, &got}) {
      Prefill(*runner, s, std::span(tokens).first(prompts[s]));
    }
  }
  Decode(got, 0, tokens, prompts[0], prompts[0] + 1);  // the graph exists
  const int64_t launches = Launches();
  std::vector<StepId> steps;
  for (int32_t s = 0; s < 2; ++s) {
    StepInput input;
    input.chunks.push_back(ChunkOf(got, s, tokens, prompts[s]));
    input.chunks.back().keeps_logits = true;
    const auto step = got.runner->Submit(input);
    ASSERT_TRUE(step.ok()) << step.status();
    steps.push_back(*step);
  }
  EXPECT_EQ(Launches(), launches) << "nothing has waited for the first step";
  for (int32_t s = 0; s < 2; ++s) {
    ASSERT_TRUE(got.runner->Collect(steps[s]).ok());
    const auto row = got.runner->Logits(steps[s], 0);
    EXPECT_EQ((Rows{{row.begin(), row.end()}}), Decode(want, s, tokens, prompts[s], prompts[s] + 1))
        << s;
  }
}

// Each further call would keep the GPU idle for some microseconds between two steps.
TEST_P(GraphTraps, ADecodeStepIsOneCopyOfInputsOneGraphAndOneCopyOfTokens) {
  TinyRunner runner(gpu_, {.type = GetParam(), .block_size = 4, .graph_buckets = {4}});
  const auto tokens = TinyTokens(20, 11);
  Prefill(runner, 0, std::span(tokens).first(10));
  Prefill(runner, 1, std::span(tokens).first(3));
  const int64_t layers = gpu_.config.layers;
  const EmulatorFaults emulator;
  TokenDraw draw;
  draw.key = {.seed = 3, .sample = 0, .position = 10};
  const LogitAddition addition = {.token = 5, .value = 2};
  draw.additions = {&addition, 1};
  for (int32_t at = 10; at < 20; ++at) {
    StepInput input;
    for (const auto& [sequence, slot] : {std::pair(0, at), std::pair(1, at - 7)}) {
      input.chunks.push_back(ChunkOf(runner, sequence, tokens, slot));
      input.chunks.back().draws = {&draw, 1};
    }
    const int64_t graphs = Launches();
    const int64_t kernels = EmulatorLibrary().counters().launches;
    const int64_t launches = emulator.calls(gpu_emulator::DriverCall::kLaunch);
    const int64_t copies = emulator.calls(gpu_emulator::DriverCall::kCopy);
    const auto step = runner.runner->Submit(input);
    ASSERT_TRUE(step.ok()) << step.status();
    ASSERT_TRUE(runner.runner->Collect(*step).ok());
    EXPECT_EQ(Launches() - graphs, 1);
    // Inputs, fed tokens, embedding, rotary table; ten for each layer, of which the gate of few
    // tokens has two; the logits' rows, norm and product; three that draw.
    EXPECT_EQ(EmulatorLibrary().counters().launches - kernels, 4 + 10 * layers + 6);
    EXPECT_EQ(emulator.calls(gpu_emulator::DriverCall::kLaunch) - launches, 1);
    EXPECT_EQ(emulator.calls(gpu_emulator::DriverCall::kCopy) - copies, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(KvTypes, GraphTraps,
                         // ThreadSanitizer is slow. Under it, launch_attention_test runs the
                         // kernels of all types.
                         testing::ValuesIn(kThreadSanitizer
                                               ? std::vector{KvType::kInt8}
                                               : std::vector{KvType::kF16, KvType::kBF16,
                                                             KvType::kF32, KvType::kInt8,
                                                             KvType::kFp8}),
                         [](const auto& info) { return std::string(KvTypeName(info.param)); });

}  // namespace
}  // namespace baton
