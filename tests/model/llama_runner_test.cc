#include "model/llama/llama_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/model/reference_llama.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

using Rows = std::vector<std::vector<float>>;

struct ModelCase {
  std::string name;
  double tolerance;  // relative to the largest logit
};

class EveryWeightType : public ::testing::TestWithParam<ModelCase> {};

// Quantised weights use 8-bit activations, so their tolerance is larger. Float weights must be
// right to the last few bits.
INSTANTIATE_TEST_SUITE_P(
    LlamaRunner, EveryWeightType,
    ::testing::Values(ModelCase{"f32", 5e-6}, ModelCase{"f16", 5e-6}, ModelCase{"bf16", 5e-6},
                      ModelCase{"q8_0", 0.05}, ModelCase{"q4_0", 0.05}, ModelCase{"q4_1", 0.05},
                      ModelCase{"q5_0", 0.07}, ModelCase{"q5_1", 0.05}, ModelCase{"k-types", 0.05},
                      ModelCase{"untied-q4_0", 0.05}, ModelCase{"linear-rope-q4_0", 0.05},
                      ModelCase{"llama3-rope-q4_0", 0.05}, ModelCase{"ntk-rope-f16", 5e-6},
                      ModelCase{"yarn-rope-f16", 5e-6}, ModelCase{"window-q4_0", 0.05}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// Largest difference from the textbook implementation, relative to the largest logit.
double DistanceFromTextbook(const TinyModel& model) {
  TinyRunner runner(model, {.type = KvType::kF32});
  const ReferenceLlama reference(*model.file, model.config);
  const auto tokens = TinyTokens(40, 3);
  const Rows rows = runner.Decode(0, tokens, 3, 16);
  EXPECT_EQ(rows.size(), 3u);
  double distance = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto expected = reference.Logits(std::span(tokens).first(tokens.size() - 2 + i));
    EXPECT_EQ(rows[i].size(), expected.size());
    double largest = 0;
    double error = 0;
    for (size_t t = 0; t < expected.size(); ++t) {
      largest = std::max(largest, std::abs(expected[t]));
      error = std::max(error, std::abs(expected[t] - rows[i][t]));
    }
    EXPECT_GT(largest, 1);
    distance = std::max(distance, error / largest);
  }
  return distance;
}

TEST_P(EveryWeightType, ComesCloseToTheTextbook) {
  EXPECT_LT(DistanceFromTextbook(TinyModel(GetParam().name)), GetParam().tolerance);
}

// Uses float weights, because rounding cannot hide a wrong frequency there.
TEST(LlamaRunner, RopeScalingsComeCloseToTheTextbook) {
  const auto plain = GgufFile::Open(TinyModelPath("f32"));
  for (const char* type : {"linear", "ntk", "yarn"}) {
    const std::string scaled =
        CopyModel(**plain, {})
            .String("llama.rope.scaling.type", type)
            .Scalar<float>("llama.rope.scaling.factor", GgufValueType::kFloat32, 4)
            .Build();
    EXPECT_LT(DistanceFromTextbook(TinyModel(*ParseGguf(scaled), 2)), 5e-6) << type;
  }
  const auto llama3 = GgufFile::Open(TinyModelPath("llama3-rope-q4_0"));
  const auto divisors = (*llama3)->FindTensor("rope_freqs.weight")->data;
  const std::string divided =
      CopyModel(**plain, {})
          .Tensor("rope_freqs.weight", {8}, GgmlType::kF32,
                  {reinterpret_cast<const char*>(divisors.data()), divisors.size()})
          .Build();
  EXPECT_LT(DistanceFromTextbook(TinyModel(*ParseGguf(divided), 2)), 5e-6);
}

TEST_P(EveryWeightType, PagesChunksLayoutsAndGraphsChangeNoBit) {
  const TinyModel model(GetParam().name);
  const auto tokens = TinyTokens(50, 4);
  TinyRunner plain(model, {.paged = false, .graph = false});
  const Rows expected = plain.Decode(1, tokens, 6, 45);
  ASSERT_EQ(expected.size(), 6u);
  for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    for (const int32_t block_size : {1, 16, 128}) {
      for (const bool graph : {false, true}) {
        TinyRunner runner(model, {.layout = layout, .block_size = block_size, .graph = graph});
        EXPECT_EQ(runner.Decode(2, tokens, 6, 7), expected)
            << KvLayoutKindName(layout) << " " << block_size << " " << graph;
      }
    }
  }
}

TEST(LlamaRunner, RopeScalingChangesTheLogits) {
  const auto tokens = TinyTokens(40, 5);
  std::set<Rows> said;
  for (const char* name :
       {"q4_0", "f16", "linear-rope-q4_0", "llama3-rope-q4_0", "ntk-rope-f16", "yarn-rope-f16"}) {
    const TinyModel model(name);
    said.insert(TinyRunner(model, {}).Decode(0, tokens, 1, 64));
  }
  EXPECT_EQ(said.size(), 6u);
}

TEST(LlamaRunner, KvTypesDiffer) {
  const TinyModel model("f32");
  const auto tokens = TinyTokens(40, 5);
  const Rows f32 = TinyRunner(model, {.type = KvType::kF32}).Decode(0, tokens, 1, 64);
  const Rows f16 = TinyRunner(model, {.type = KvType::kF16}).Decode(0, tokens, 1, 64);
  const Rows bf16 = TinyRunner(model, {.type = KvType::kBF16}).Decode(0, tokens, 1, 64);
  EXPECT_NE(f32, f16);
  EXPECT_NE(f32, bf16);
  EXPECT_NE(f16, bf16);
}

TEST(LlamaRunner, PoolsWithScalesStayNearAndKeepTheirBitsInEveryChunkBlockSizeAndLayout) {
  const TinyModel model("f32");
  const auto tokens = TinyTokens(60, 5);
  const Rows f32 = TinyRunner(model, {.type = KvType::kF32}).Decode(0, tokens, 4, 64);
  for (const auto& [type, most] : {std::pair(KvType::kInt8, 0.02), std::pair(KvType::kFp8, 0.2)}) {
    SCOPED_TRACE(KvTypeName(type));
    const Rows rows = TinyRunner(model, {.type = type}).Decode(0, tokens, 4, 64);
    EXPECT_NE(f32, rows);
    double difference = 0;
    double whole = 0;
    for (size_t r = 0; r < f32.size(); ++r) {
      for (size_t i = 0; i < f32[r].size(); ++i) {
        difference += std::pow(rows[r][i] - f32[r][i], 2);
        whole += std::pow(f32[r][i], 2);
      }
    }
    EXPECT_LT(std::sqrt(difference / whole), most);
    for (const int32_t block_size : {1, 8, 128}) {
      for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
        TinyRunner runner(model, {.layout = layout, .type = type, .block_size = block_size});
        EXPECT_EQ(runner.Decode(3, tokens, 4, 7), rows) << block_size;
      }
    }
  }
}

// Tries every batch size up to one above the largest bucket, with and without padding.
TEST(LlamaRunner, PaddedGraphsGiveTheBitsOfEagerSteps) {
  const TinyModel model("q4_1", /*threads=*/4);
  const auto tokens = TinyTokens(60, 6);
  for (const int32_t block_size : {1, 16}) {
    TinyRunner eager(model, {.block_size = block_size, .graph = false});
    TinyRunner graph(model, {.block_size = block_size, .graph_buckets = {4, 12}});
    for (TinyRunner* runner : {&eager, &graph}) {
      for (int32_t s = 0; s < 16; ++s) runner->Decode(s, std::span(tokens).first(10 + s), 1, 64);
    }
    const int64_t eager_before = graph.runner->counters().eager_steps;
    for (int32_t batch = 1; batch <= 13; ++batch) {
      StepInput input_eager;
      StepInput input_graph;
      for (int32_t s = 0; s < batch; ++s) {
        const auto token = std::span(tokens).subspan(10 + s + batch - 1, 1);
        // Every batch writes the slot behind the sequence's prompt again, with a different token.
        input_eager.chunks.push_back(eager.Chunk(s, token, 10 + s, 1));
        input_graph.chunks.push_back(graph.Chunk(s, token, 10 + s, 1));
      }
      ASSERT_TRUE(eager.Run(input_eager).ok());
      ASSERT_TRUE(graph.Run(input_graph).ok());
      for (int32_t row = 0; row < batch; ++row) EXPECT_EQ(eager.Row(row), graph.Row(row)) << batch;
    }
    EXPECT_EQ(eager.runner->counters().graph_replays, 0);
    EXPECT_EQ(graph.runner->counters().eager_steps, eager_before + 1) << "only 13 has no bucket";
  }
}

// Padding rows must not write into the KV of other sequences, so their later logits stay right.
TEST(LlamaRunner, PaddingDoesNotTouchAnyKv) {
  const TinyModel model("q4_1");
  const auto tokens = TinyTokens(40, 7);
  const Rows expected = TinyRunner(model, {.graph = false}).Decode(0, tokens, 1, 64);
  TinyRunner runner(model, {.block_size = 1, .graph_buckets = {16}});
  runner.Decode(0, std::span(tokens).first(39), 1, 64);
  runner.Decode(1, TinyTokens(30, 8), 20, 64);  // 19 steps with 15 padded rows each
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, std::span(tokens).subspan(39), 39, 1));
  ASSERT_TRUE(runner.Run(input).ok());
  EXPECT_EQ(runner.Row(0), expected[0]);
}

TEST(LlamaRunner, AChunkYieldsTheLogitsOfItsLastRows) {
  const TinyModel model("q8_0");
  const auto tokens = TinyTokens(30, 9);
  const Rows expected = TinyRunner(model, {}).Decode(0, tokens, 5, 64);
  TinyRunner runner(model, {});
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 5));
  ASSERT_TRUE(runner.Run(input).ok());
  for (int32_t row = 0; row < 5; ++row) EXPECT_EQ(runner.Row(row), expected[row]) << row;
}

TEST(LlamaRunner, AnUnwantedStepStopsAtTheNextOpAndLeavesNoStateBehind) {
  const TinyModel model("q8_0");
  const auto tokens = TinyTokens(30, 9);
  const Rows expected = TinyRunner(model, {}).Decode(0, tokens, 1, 64);
  TinyRunner runner(model, {});
  std::vector<int64_t>& ops = runner.device.rows();
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 1));
  ops.clear();
  ASSERT_TRUE(runner.Run(input).ok());
  const size_t whole = ops.size();
  ASSERT_GT(whole, 8u * model.config.layers);
  for (size_t most = 0; most <= whole; ++most) {
    ops.clear();
    input.wanted = [&] { return ops.size() < most ? 1 : 0; };
    EXPECT_EQ(runner.Run(input).code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(ops.size(), most);
    input.wanted = [] { return 1; };
    ASSERT_TRUE(runner.Run(input).ok());
    EXPECT_EQ(runner.Row(0), expected[0]) << most;
  }
}

TEST(LlamaRunner, AnUnwantedDecodeStepStopsInsideItsGraph) {
  const TinyModel model("q8_0");
  const auto tokens = TinyTokens(30, 9);
  const Rows expected = TinyRunner(model, {}).Decode(0, tokens, 1, 64);
  TinyRunner runner(model, {});
  runner.Decode(0, std::span(tokens).first(29), 1, 64);
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, std::span(tokens).subspan(29), 29, 1));
  int asked = 0;
  input.wanted = [&] { return ++asked, 1; };
  ASSERT_TRUE(runner.Run(input).ok());
  const int whole = asked;
  ASSERT_GT(whole, 8 * model.config.layers) << "before every op";
  for (int most = 1; most < whole; ++most) {
    asked = 0;
    input.wanted = [&] { return ++asked >= most ? 0 : 1; };
    EXPECT_EQ(runner.Run(input).code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(asked, most + 1) << "no op, but a last look";
  }
  input.wanted = nullptr;
  ASSERT_TRUE(runner.Run(input).ok());
  EXPECT_EQ(runner.Row(0), expected[0]);
  EXPECT_EQ(runner.runner->counters().graph_replays, whole + 1);
}

TEST(LlamaRunner, AStepDropsUnwantedChunksAtItsEnd) {
  const TinyModel model("q4_0");
  const auto first = TinyTokens(33, 10);
  const auto second = TinyTokens(20, 11);
  const auto third = TinyTokens(70, 12);
  TinyRunner alone(model, {});
  const Rows first_rows = alone.Decode(0, first, 1, 64);
  const Rows second_rows = alone.Decode(1, second, 1, 64);
  const Rows third_rows = alone.Decode(2, third, 1, 70);
  TinyRunner runner(model, {});
  runner.Decode(0, std::span(first).first(32), 1, 64);
  std::vector<int64_t>& ops = runner.device.rows();
  StepInput input;  // a decode row and two prompts
  input.chunks.push_back(runner.Chunk(0, std::span(first).subspan(32), 32, 1));
  input.chunks.push_back(runner.Chunk(1, second, 0, 1));
  input.chunks.push_back(runner.Chunk(2, third, 0, 1));
  const size_t whole = [&] {
    ops.clear();
    EXPECT_TRUE(runner.Run(input).ok());
    return ops.size();
  }();
  for (size_t most = 0; most <= whole; ++most) {
    ops.clear();
    input.wanted = [&] { return ops.size() < most ? 3 : 2; };
    ASSERT_TRUE(runner.Run(input).ok());
    EXPECT_EQ(runner.Row(0), first_rows[0]) << most;
    EXPECT_EQ(runner.Row(1), second_rows[0]) << most;
    EXPECT_EQ(ops.size(), whole);
    for (size_t op = most; op < whole; ++op) EXPECT_LE(ops[op], 21) << op;
  }
  input.chunks.erase(input.chunks.begin(), input.chunks.begin() + 2);
  input.wanted = nullptr;
  ASSERT_TRUE(runner.Run(input).ok());
  EXPECT_EQ(runner.Row(0), third_rows[0]);
}

TEST(LlamaRunner, ReportsWhenTheKvOfEachLayerIsWritten) {
  const TinyModel model("q8_0");
  const auto tokens = TinyTokens(30, 9);
  TinyRunner runner(model, {});
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 1));
  std::vector<int32_t> told;
  input.kv_written = [&](int32_t layers, int32_t) { told.push_back(layers); };
  input.wanted = [&] { return told.empty() ? 1 : 0; };
  EXPECT_FALSE(runner.Run(input).ok());
  EXPECT_EQ(told, (std::vector<int32_t>{1}));
  told.clear();
  input.wanted = nullptr;
  ASSERT_TRUE(runner.Run(input).ok());
  ASSERT_EQ(told.size(), static_cast<size_t>(model.config.layers));
  for (int32_t layer = 0; layer < model.config.layers; ++layer) EXPECT_EQ(told[layer], layer + 1);
}

TEST(LlamaRunner, MixedBatchesGiveEachItsOwnRows) {
  const TinyModel model("q4_0");
  const auto first = TinyTokens(33, 10);
  const auto second = TinyTokens(20, 11);
  const auto third = TinyTokens(9, 12);
  TinyRunner alone(model, {});
  const Rows first_rows = alone.Decode(0, first, 1, 64);
  const Rows second_rows = alone.Decode(1, second, 1, 64);
  const Rows third_rows = alone.Decode(2, third, 2, 64);
  TinyRunner runner(model, {});
  runner.Decode(0, std::span(first).first(32), 1, 64);
  runner.Decode(1, std::span(second).first(6), 1, 64);
  StepInput input;  // a decode row, a chunk without logits, the rest of a prompt, a whole prompt
  input.chunks.push_back(runner.Chunk(0, std::span(first).subspan(32), 32, 1));
  input.chunks.push_back(runner.Chunk(3, first, 0, 0));
  input.chunks.push_back(runner.Chunk(1, std::span(second).subspan(6), 6, 1));
  input.chunks.push_back(runner.Chunk(2, third, 0, 2));
  ASSERT_TRUE(runner.Run(input).ok());
  EXPECT_EQ(runner.Row(0), first_rows[0]);
  EXPECT_EQ(runner.Row(1), second_rows[0]);
  EXPECT_EQ(runner.Row(2), third_rows[0]);
  EXPECT_EQ(runner.Row(3), third_rows[1]);
}

// Keys and queries are rotated by position, not by slot.
TEST(LlamaRunner, PositionsMayDifferFromSlots) {
  const TinyModel model("f32");
  const auto tokens = TinyTokens(20, 13);
  TinyRunner runner(model, {.type = KvType::kF32});
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 1));
  ASSERT_TRUE(runner.Run(input).ok());
  const auto plain = runner.Row(0);
  input.chunks[0].begin_position = 50;  // shifts all positions: equal except for rounding
  ASSERT_TRUE(runner.Run(input).ok());
  const auto shifted = runner.Row(0);
  EXPECT_NE(plain, shifted);
  for (size_t t = 0; t < plain.size(); ++t) EXPECT_NEAR(plain[t], shifted[t], 1e-3) << t;
}

// A sequence with a copied part-full block gives the same logits as the original sequence.
TEST(LlamaRunner, CopiedSlotsContainAllKvThatATokenNeeds) {
  const TinyModel model("f32");
  const auto tokens = TinyTokens(30, 15);
  for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
      TinyRunner runner(model, {.layout = layout, .type = type});
      runner.Decode(0, std::span(tokens).first(27), 1, 64);
      const std::span<const BlockId> from = runner.Chunk(0, tokens, 0, 0).block_table;
      const std::span<const BlockId> to = runner.Chunk(1, tokens, 0, 0).block_table;
      ASSERT_TRUE(
          runner.runner
              ->CopyBlocks(std::vector<BlockCopy>{{.from = from[0], .to = to[0], .tokens = 16},
                                                  {.from = from[1], .to = to[1], .tokens = 11}})
              .ok());
      StepInput input;
      for (const int32_t sequence : {0, 1}) {
        input.chunks.push_back(runner.Chunk(sequence, std::span(tokens).subspan(27, 3), 27, 1));
      }
      ASSERT_TRUE(runner.Run(input).ok());
      EXPECT_EQ(runner.Row(0), runner.Row(1));
    }
  }
}

TEST(LlamaRunner, UploadsOnlyWhatChangesInTheTables) {
  const TinyModel model("q4_1");
  TinyRunner runner(model, {});
  const auto tokens = TinyTokens(30, 14);
  runner.Decode(0, std::span(tokens).first(10), 1, 64);
  const int64_t uploads = runner.runner->counters().table_uploads;
  EXPECT_GT(uploads, 0);
  runner.Decode(0, tokens, 5, 64);
  EXPECT_EQ(runner.runner->counters().table_uploads, uploads);
}

}  // namespace
}  // namespace baton
