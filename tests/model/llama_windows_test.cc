// Tests the Llama runner on a model with two KV groups: full attention and a sliding window.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/model/reference_llama.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

using Rows = std::vector<std::vector<float>>;

constexpr char kModel[] = "window-q4_0";
constexpr int32_t kWindow = 24;  // that model's window, in tokens

// Largest difference, relative to the largest expected value.
template <typename Got, typename Expected>
double Distance(const Got& got, const Expected& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double largest = 0;
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max<double>(largest, std::abs(expected[i]));
    error = std::max<double>(error, std::abs(expected[i] - got[i]));
  }
  EXPECT_GT(largest, 1);
  return error / largest;
}

// The float model of two layers, with a window in one of them.
std::unique_ptr<GgufFile> FloatModel(uint32_t window, std::string_view pattern) {
  static std::deque<std::string> bytes;  // the files read from these strings later
  const auto plain = *GgufFile::Open(TinyModelPath("f32"));
  bytes.push_back(
      CopyModel(*plain, {})
          .Scalar<uint32_t>("llama.attention.sliding_window", GgufValueType::kUint32, window)
          .Array("llama.attention.sliding_window_pattern", GgufValueType::kBool, pattern.size(),
                 std::string(pattern))
          .Build());
  return *ParseGguf(bytes.back());
}

struct Golden {
  std::vector<TokenId> tokens;
  struct Row {
    int32_t position;
    std::vector<double> logits;
  };
  std::vector<Row> rows;
};

Golden ReadGolden() {
  std::ifstream file(std::string(BATON_TESTDATA) + "/window_golden.json");
  const auto json = nlohmann::json::parse(file);
  Golden golden{.tokens = json["tokens"].get<std::vector<TokenId>>(), .rows = {}};
  for (const auto& row : json["rows"]) {
    golden.rows.push_back({row["position"], row["logits"].get<std::vector<double>>()});
  }
  return golden;
}

TEST(LlamaWindows, TheTextbookAndTheRunnerAgreeWithNumpy) {
  const TinyModel model(kModel);
  const ReferenceLlama textbook(*model.file, model.config);
  const Golden golden = ReadGolden();
  ASSERT_EQ(golden.rows.size(), 4u);
  for (const Golden::Row& row : golden.rows) {
    const auto tokens = std::span(golden.tokens).first(row.position + 1);
    EXPECT_LT(Distance(textbook.Logits(tokens), row.logits), 1e-4) << row.position;
    TinyRunner runner(model, {.type = KvType::kF32});
    // 8-bit activations, through four layers.
    EXPECT_LT(Distance(runner.Decode(0, tokens, 1, 64)[0], row.logits), 0.1) << row.position;
  }
}

// Uses float weights, because rounding cannot hide a window that is off by one there.
TEST(LlamaWindows, FloatWeightsComeCloseToTheTextbook) {
  const auto tokens = TinyTokens(40, 3);
  for (const std::string_view pattern :
       {std::string_view("\1\0", 2), std::string_view("\0\1", 2)}) {
    for (const uint32_t window : {1u, 2u, 17u, 39u}) {
      const TinyModel model(FloatModel(window, pattern), 2);
      const ReferenceLlama textbook(*model.file, model.config);
      TinyRunner runner(model, {.type = KvType::kF32});
      const Rows rows = runner.Decode(0, tokens, 3, 16);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto expected = textbook.Logits(std::span(tokens).first(tokens.size() - 2 + i));
        EXPECT_LT(Distance(rows[i], expected), 5e-6) << window;
      }
    }
  }
}

// Uses windows longer than a segment of attention, with start and end in different segments.
TEST(LlamaWindows, LongWindowsKeepTheirBitsInEveryChunkAndOnEveryThreadAndInstructionSet) {
  const auto tokens = TinyTokens(500, 9);
  const StepLimits limits{
      .max_tokens = 500, .max_sequences = 16, .max_logit_rows = 64, .max_context = 512};
  for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    Rows expected;
    for (const InstructionSet set : {InstructionSet::kPlain, BestInstructionSet()}) {
      for (const int threads : {1, 4}) {
        for (const int32_t chunk : {500, 77}) {
          const TinyModel model(FloatModel(300, std::string_view("\1\0", 2)), threads, false, set);
          TinyRunner runner(model, {.type = type, .limits = limits});
          const Rows rows = runner.Decode(1, tokens, 4, chunk);
          if (expected.empty()) expected = rows;
          EXPECT_EQ(rows, expected) << static_cast<int>(set) << " " << threads << " " << chunk;
        }
      }
    }
  }
}

TEST(LlamaWindows, KvTypesBatchesAndChunksChangeNoBit) {
  const TinyModel model(kModel);
  const auto tokens = TinyTokens(70, 4);
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    TinyRunner alone(model, {.type = type, .paged = false, .graph = false});
    const Rows expected = alone.Decode(1, tokens, 2, 69);
    for (const int32_t chunk : {1, 5, 24, 32}) {
      TinyRunner runner(model, {.type = type});
      EXPECT_EQ(runner.Decode(2, tokens, 2, chunk), expected) << KvTypeName(type) << " " << chunk;
    }
    // In one step with other sequences.
    TinyRunner runner(model, {.type = type});
    const auto other = TinyTokens(20, 6);
    runner.Decode(3, std::span(tokens).first(69), 1, 33);
    StepInput input;
    input.chunks.push_back(runner.Chunk(0, other, 0, 1));
    input.chunks.push_back(runner.Chunk(3, std::span(tokens).subspan(69), 69, 1));
    input.chunks.push_back(runner.Chunk(1, tokens, 0, 1));
    ASSERT_TRUE(runner.Run(input).ok());
    EXPECT_EQ(runner.Row(1), expected[1]);
    EXPECT_EQ(runner.Row(2), expected[1]);
  }
}

// Blocks behind the window and the scratch block may contain any bytes.
TEST(LlamaWindows, ContentsOfDeadBlocksHaveNoEffect) {
  const TinyModel model(kModel);
  const auto tokens = TinyTokens(80, 7);
  for (const int32_t block_size : {4, 16}) {
    const TinyPool pool{.type = KvType::kF32, .block_size = block_size};
    TinyRunner runner(model, pool);
    const Rows expected = runner.Decode(0, tokens, 1, 80);
    TinyRunner spoiled(model, pool);
    spoiled.Decode(0, std::span(tokens).first(60), 1, 60);
    const KvLayout& window = spoiled.layout().group(1);
    const int32_t dead = (60 - kWindow + 1) / block_size;
    ASSERT_GT(dead, 0);
    const int64_t bytes = window.bytes_per_block();
    const auto spoil = [&](int64_t block) {
      std::memset(spoiled.part(1).data() + block * bytes, 0xFF, static_cast<size_t>(bytes));
    };
    for (int32_t i = 0; i < dead; ++i) spoil(spoiled.WindowBlock(0, i).value());
    spoil(window.num_blocks() - 1);
    StepInput input;
    input.chunks.push_back(spoiled.Chunk(0, std::span(tokens).subspan(60), 60, 1));
    ASSERT_TRUE(spoiled.Run(input).ok());
    EXPECT_EQ(spoiled.Row(0), expected[0]);
    // The first block inside the window does affect the result.
    spoil(spoiled.WindowBlock(0, (80 - kWindow) / block_size + 1).value());
    input.chunks[0] = spoiled.Chunk(0, std::span(tokens).subspan(79), 79, 1);
    ASSERT_TRUE(spoiled.Run(input).ok());
    EXPECT_NE(spoiled.Row(0), expected[0]);
  }
}

TEST(LlamaWindows, PaddingWritesIntoTheScratchBlockOfEachGroup) {
  const TinyModel model(kModel);
  const auto tokens = TinyTokens(33, 8);
  const Rows expected = TinyRunner(model, {.graph = false}).Decode(5, tokens, 4, 30);
  TinyRunner runner(model, {.graph_buckets = {8}});
  EXPECT_EQ(runner.Decode(5, tokens, 4, 30), expected);
  for (const int32_t group : {0, 1}) {
    const auto scratch = runner.part(group).last(
        static_cast<size_t>(runner.layout().group(group).bytes_per_block()));
    EXPECT_TRUE(std::any_of(scratch.begin(), scratch.end(), [](std::byte value) {
      return value != std::byte{0};
    })) << group;
  }
}

TEST(LlamaWindows, CopiesAffectOnlyTheirGroup) {
  const TinyModel model(kModel);
  const auto tokens = TinyTokens(30, 15);
  for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
      TinyRunner runner(model, {.layout = layout, .type = type});
      runner.Decode(0, std::span(tokens).first(27), 1, 64);
      std::vector<BlockCopy> copies;
      for (const int32_t group : {0, 1}) {
        const auto from = runner.Chunk(0, tokens, 0, 0).table(group);
        const auto to = runner.Chunk(1, tokens, 0, 0).table(group);
        copies.push_back({.from = from[0], .to = to[0], .tokens = 16, .group = group});
        copies.push_back({.from = from[1], .to = to[1], .tokens = 11, .group = group});
      }
      const auto say = [&] {
        StepInput input;
        for (const int32_t sequence : {0, 1}) {
          input.chunks.push_back(runner.Chunk(sequence, std::span(tokens).subspan(27, 3), 27, 1));
        }
        EXPECT_TRUE(runner.Run(input).ok());
        return runner.Row(0) == runner.Row(1);
      };
      ASSERT_TRUE(runner.runner->CopyBlocks(std::span(copies).first(2)).ok());
      EXPECT_FALSE(say()) << "the window's blocks are not copied yet";
      ASSERT_TRUE(runner.runner->CopyBlocks(std::span(copies).last(2)).ok());
      EXPECT_TRUE(say());
    }
  }
}

TEST(LlamaWindows, RunsAreRefused) {
  const TinyModel model(kModel);
  TinyRunner runner(model, {});
  const auto tokens = TinyTokens(4, 1);
  const std::vector<SlotRun> runs = {{.begin = 0, .end = 4}};
  StepInput input;
  input.chunks.push_back(runner.Chunk(0, tokens, 0, 1));
  input.chunks[0].runs = runs;
  EXPECT_EQ(runner.Run(input).code(), absl::StatusCode::kUnimplemented);
  input.chunks[0].runs = {};
  EXPECT_TRUE(runner.Run(input).ok());
}

}  // namespace
}  // namespace baton
