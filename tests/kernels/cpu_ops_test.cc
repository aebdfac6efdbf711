#include "kernels/cpu/cpu_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_stream.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7007;
constexpr int64_t kCols = 96, kHeads = 6, kKvHeads = 2, kHeadDim = 16, kFeedForward = 160;
constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim, kVocabulary = 50, kBlocks = 8;

struct Weights {
  explicit Weights(const Ops& ops, WeightFormat format) : random(kSeed) {
    embedding = Pack(ops, format, kVocabulary, kCols);
    qkv = Pack(ops, format, kQkv, kCols);
    output = Pack(ops, format, kCols, kCols);
    gate_up = Pack(ops, format, 2 * kFeedForward, kCols);
    down = Pack(ops, format, kCols, kFeedForward);
    norm = RandomFloats(random, kCols);
    for (int i = 0; i < kHeadDim / 2; ++i) frequencies.push_back(1.0 / (1 + i * i));
  }
  PackedMatrix Pack(const Ops& ops, WeightFormat format, int64_t rows, int64_t cols) {
    const auto source = RandomGgufMatrix(random, format, rows, cols);
    storage.emplace_back(ops.PackedBytes(format, rows, cols));
    ops.PackMatrix(format, rows, cols, source.data(), storage.back().data());
    return {format, rows, cols, storage.back().data()};
  }

  std::mt19937_64 random;
  std::vector<std::vector<std::byte>> storage;
  PackedMatrix embedding, qkv, output, gate_up, down;
  std::vector<float> norm;
  std::vector<double> frequencies;
};

// One transformer layer with its own buffers, which uses every op. Inputs may change between runs.
struct Step {
  Step(const Weights& weights, int64_t tokens) : weights(weights), tokens(tokens) {
    std::mt19937_64 random(kSeed + 1);
    for (int64_t t = 0; t < tokens; ++t) {
      ids.push_back(static_cast<int32_t>(random() % kVocabulary));
      embedding_rows.push_back(t % 5 == 3 ? static_cast<int32_t>(t % 2) : -1);
      sequences.push_back(0);
      slots.push_back(t);
      for (int c = 0; c < kPositionComponents; ++c) positions.push_back(static_cast<int32_t>(t));
      row_runs.push_back({.run_count = 1, .last_end = static_cast<int32_t>(t + 1)});
    }
    gathered = {static_cast<int32_t>(tokens - 1), 0};
    embeddings = RandomFloats(random, 2 * kCols);
    for (int i = 0; i < kBlocks; ++i) table.push_back(kBlocks - 1 - i);
    table.resize(2 * kBlocks);              // for two sequences
    for (int64_t t = 0; t < tokens; ++t) {  // slots in the shuffled blocks
      slots[t] = int64_t{table[t / 16]} * 16 + t % 16;
    }
  }

  void Enqueue(const Ops& ops, Stream& stream) {
    const int64_t half = kHeadDim / 2;
    ops.EmbedTokens(stream, {weights.embedding, ids.data(), embedding_rows.data(),
                             embeddings.data(), hidden.data(), tokens});
    ops.RotaryTable(stream, {positions.data(), weights.frequencies.data(), nullptr, cosines.data(),
                             sines.data(), tokens, half});
    ops.RmsNorm(stream, {hidden.data(), weights.norm.data(), 1e-5f, tokens, kCols, normed.view()});
    ops.MatMul(stream, {normed.view(), weights.qkv, qkv.data(), kQkv, tokens, false});
    const KvLayerView kv{pool.data(),
                         KvType::kF16,
                         4,
                         16 * 2 * kKvHeads * kHeadDim,
                         kHeadDim,
                         16 * kHeadDim,
                         16 * kKvHeads * kHeadDim};
    ops.RopeKvWrite(stream, {.qk = qkv.data(),
                             .v = qkv.data() + (kHeads + kKvHeads) * kHeadDim,
                             .stride = kQkv,
                             .query_heads = kHeads,
                             .kv_heads = kKvHeads,
                             .head_dim = kHeadDim,
                             .cosines = cosines.data(),
                             .sines = sines.data(),
                             .half = half,
                             .slot_mapping = slots.data(),
                             .kv = kv,
                             .tokens = tokens});
    ops.PagedAttention(stream, {qkv.data(), kQkv, mixed.f32.data(), kHeads, kKvHeads, kHeadDim,
                                0.25f, kv, sequences.data(), &run, row_runs.data(), table.data(),
                                kBlocks, nullptr, nullptr, tokens});
    ops.Quantize(stream, mixed.f32.data(), tokens, kCols,
                 {nullptr, mixed.q8.data(), mixed.scale.data(), mixed.scaled_sum.data()});
    ops.MatMul(stream, {mixed.view(), weights.output, hidden.data(), kCols, tokens, true});
    ops.RmsNorm(stream, {hidden.data(), weights.norm.data(), 1e-5f, tokens, kCols, normed.view()});
    ops.MatMul(stream,
               {normed.view(), weights.gate_up, gate_up.data(), 2 * kFeedForward, tokens, false});
    ops.SiluMul(stream, {gate_up.data(), tokens, kFeedForward, gated.view()});
    ops.MatMul(stream, {gated.view(), weights.down, hidden.data(), kCols, tokens, true});
    ops.GatherRows(stream, {hidden.data(), gathered.data(), last.data(), 2, kCols});
    stream.Copy(result.data(), last.data(), result.size() * sizeof(float));
  }

  const Weights& weights;
  const int64_t tokens;
  std::vector<int32_t> ids, embedding_rows, positions, sequences, gathered, table;
  std::vector<int64_t> slots;
  const VisibleRun run;
  std::vector<RowRuns> row_runs;
  std::vector<float> embeddings;
  std::vector<float> hidden = std::vector<float>(tokens * kCols);
  std::vector<float> cosines = std::vector<float>(tokens * kHeadDim / 2), sines = cosines;
  std::vector<float> qkv = std::vector<float>(tokens * kQkv);
  std::vector<float> gate_up = std::vector<float>(tokens * 2 * kFeedForward);
  std::vector<uint16_t> pool =
      std::vector<uint16_t>(kBlocks * 16 * 2 * kKvHeads * kHeadDim, 0xffff);  // NaN
  std::vector<float> last = std::vector<float>(2 * kCols), result = last;
  OwnedActivations normed{tokens, kCols}, mixed{tokens, kCols}, gated{tokens, kFeedForward};
};

struct Backend {
  explicit Backend(int threads, const CpuKernels& kernels = PlainKernels(),
                   CpuStream::Runs runs = CpuStream::Runs::kInline)
      : pool(threads), ops(kernels, pool), stream(pool, runs) {}
  ThreadPool pool;
  CpuOps ops;
  CpuStream stream;
};

TEST(CpuOps, AMatrixPackedInPartsByManyThreadsIsTheOnePackedAtOnce) {
  Backend backend(3);
  std::mt19937_64 random(kSeed);
  const int64_t rows = 1000, cols = 2048;  // several units of work; the last row group is not full
  for (const WeightFormat format : {WeightFormat::kF16, WeightFormat::kQ4_1, WeightFormat::kQ6_K}) {
    SCOPED_TRACE(WeightFormatName(format));
    const auto source = RandomGgufMatrix(random, format, rows, cols);
    std::vector<std::byte> once(PackedMatrixBytes(format, rows, cols)), parts(once.size());
    ASSERT_EQ(backend.ops.PackedBytes(format, rows, cols), once.size());
    PackMatrixRows(format, rows, cols, source.data(), once.data());
    backend.ops.PackMatrix(format, rows, cols, source.data(), parts.data());
    EXPECT_TRUE(parts == once);
  }
}

TEST(CpuOps, AStepHasTheSameBitsOnAnyNumberOfThreads) {
  for (const WeightFormat format : kAllWeightFormats) {
    if (kCols % BlockColumns(format) != 0) continue;
    Backend one(1);
    const Weights weights(one.ops, format);
    for (const int64_t tokens : {1, 2, 17, 120}) {
      SCOPED_TRACE(testing::Message() << WeightFormatName(format) << " " << tokens << " tokens");
      Step expected(weights, tokens);
      expected.Enqueue(one.ops, one.stream);
      for (const float value : expected.result) ASSERT_TRUE(std::isfinite(value));
      for (const int threads : {2, 3, 4}) {
        Backend many(threads);
        Step step(weights, tokens);
        step.Enqueue(many.ops, many.stream);
        ASSERT_EQ(step.hidden, expected.hidden) << threads;
        ASSERT_EQ(step.result, expected.result) << threads;
        ASSERT_EQ(step.pool, expected.pool) << threads;
      }
    }
  }
}

TEST(CpuOps, AStepHasTheSameBitsOnEveryInstructionSet) {
  for (const WeightFormat format : kAllWeightFormats) {
    if (kCols % BlockColumns(format) != 0) continue;
    Backend plain(1);
    const Weights weights(plain.ops, format);
    for (const int64_t tokens : {1, 7, 100}) {
      Step expected(weights, tokens);
      expected.Enqueue(plain.ops, plain.stream);
      for (const InstructionSet set : kInstructionSets) {
        if (!IsSupported(set)) continue;
        Backend fast(2, KernelsFor(set));
        Step step(weights, tokens);
        step.Enqueue(fast.ops, fast.stream);
        ASSERT_EQ(step.result, expected.result)
            << WeightFormatName(format) << " " << InstructionSetName(set) << " " << tokens;
      }
    }
  }
}

TEST(CpuOps, AGatedProductIsTheProductAndThenTheGate) {
  std::mt19937_64 random(kSeed);
  for (const WeightFormat format : kAllWeightFormats) {
    const int64_t cols = WholeBlocks(format, kCols);
    Backend plain(1);
    Weights weights(plain.ops, WeightFormat::kF32);
    const PackedMatrix gate_up = weights.Pack(plain.ops, format, 2 * kFeedForward, cols);
    for (const int64_t tokens :
         {1, 31, 32, 33, 130}) {  // below and above the limit for doing both at once
      OwnedActivations x(tokens, cols), expected(tokens, kFeedForward);
      x.f32 = RandomFloats(random, tokens * cols);
      plain.ops.Quantize(plain.stream, x.f32.data(), tokens, cols, x.view());
      std::vector<float> products(tokens * 2 * kFeedForward);
      const MatMulArgs product = {x.view(), gate_up, products.data(), 2 * kFeedForward, tokens};
      plain.ops.MatMul(plain.stream, product);
      plain.ops.SiluMul(plain.stream, {products.data(), tokens, kFeedForward, expected.view()});
      for (const InstructionSet set : kInstructionSets) {
        if (!IsSupported(set)) continue;
        for (const int threads : {1, 3}) {
          Backend backend(threads, KernelsFor(set));
          OwnedActivations out(tokens, kFeedForward);
          backend.ops.GatedMatMul(backend.stream, {product, out.view()});
          SCOPED_TRACE(testing::Message()
                       << WeightFormatName(format) << " " << InstructionSetName(set) << " "
                       << tokens << " tokens, " << threads << " threads");
          ASSERT_EQ(out.f32, expected.f32);
          ASSERT_EQ(out.q8, expected.q8);
          ASSERT_EQ(out.scale, expected.scale);
          ASSERT_EQ(out.scaled_sum, expected.scaled_sum);
        }
      }
    }
  }
}

TEST(CpuOps, AGraphReplayedOnChangedBuffersEqualsEager) {
  Backend backend(3);
  const Weights weights(backend.ops, WeightFormat::kQ4_1);
  const int64_t tokens = 20;
  Step graphed(weights, tokens), eager(weights, tokens);
  backend.stream.BeginCapture();
  graphed.Enqueue(backend.ops, backend.stream);
  const auto graph = backend.stream.EndCapture();
  EXPECT_EQ(graph->op_count(), 14);
  EXPECT_EQ(graphed.result, std::vector<float>(2 * kCols));  // capturing runs nothing

  for (int round = 0; round < 4; ++round) {
    for (Step* step : {&graphed, &eager}) {
      step->ids[round] = 7 + round;
      step->gathered[1] = round;
      for (int32_t& position : step->positions) position += 3;
      if (round == 1) {  // two sequences of ten tokens in other blocks; two rows of padding
        step->table[0] = 2;
        step->table[kBlocks] = 5;
        for (int64_t t = 0; t < tokens; ++t) {
          step->sequences[t] = static_cast<int32_t>(t / 10);
          step->slots[t] = (t < 10 ? 2 : 5) * 16 + t % 10;
          step->row_runs[t].last_end = static_cast<int32_t>(t % 10 + 1);
        }
        for (const int64_t t : {18, 19}) {
          step->slots[t] = -1;
          step->row_runs[t] = {};
        }
      }
    }
    backend.stream.Launch(*graph);
    eager.Enqueue(backend.ops, backend.stream);
    ASSERT_EQ(graphed.result, eager.result) << "round " << round;
    ASSERT_EQ(graphed.pool, eager.pool);
  }
}

TEST(CpuOps, AStepHasTheSameBitsOnAStreamWithAThreadOfItsOwn) {
  Backend inline_backend(2);
  Backend asynchronous(2, PlainKernels(), CpuStream::Runs::kOnItsThread);
  const Weights weights(inline_backend.ops, WeightFormat::kQ4_1);
  Step expected(weights, 40), step(weights, 40);
  for (int round = 0; round < 3; ++round) {  // each round continues from the results of the last
    expected.Enqueue(inline_backend.ops, inline_backend.stream);
    step.Enqueue(asynchronous.ops, asynchronous.stream);
  }
  asynchronous.stream.Synchronize();
  EXPECT_EQ(step.result, expected.result);
  EXPECT_EQ(step.pool, expected.pool);
}

// Row limit that allows the given number of rows, one entry per op.
class FewerRows final : public RowLimit {
 public:
  explicit FewerRows(std::vector<int64_t> rows) : rows_(std::move(rows)) {}
  int64_t Rows() override { return rows_[std::min(asked_++, rows_.size() - 1)]; }
  size_t asked() const { return asked_; }

 private:
  const std::vector<int64_t> rows_;
  size_t asked_ = 0;
};

TEST(CpuOps, ARowLimitIsReadWhenAnOpRuns) {
  for (const CpuStream::Runs runs : {CpuStream::Runs::kInline, CpuStream::Runs::kOnItsThread}) {
    Backend backend(2, PlainKernels(), runs);
    constexpr int64_t kRows = 6;
    const std::vector<float> x(kRows * kCols, 1.0f);
    const std::vector<int32_t> indices(kRows, 0);
    std::vector<std::vector<float>> out(4, std::vector<float>(kRows * kCols, 7.0f));
    FewerRows limit({100, 4, 0});
    const auto gather = [&](int op) {
      backend.ops.GatherRows(backend.stream, {.x = x.data(),
                                              .indices = indices.data(),
                                              .out = out[op].data(),
                                              .rows = kRows,
                                              .cols = kCols});
    };
    backend.stream.LimitRows(&limit);
    for (int op = 0; op < 3; ++op) gather(op);
    backend.stream.BeginCapture();
    gather(3);
    const auto graph = backend.stream.EndCapture();
    backend.stream.LimitRows(nullptr);
    backend.stream.Launch(*graph);
    backend.stream.Synchronize();
    EXPECT_EQ(limit.asked(), 3u);
    const auto computed = [&](int op) {
      return std::count(out[op].begin(), out[op].end(), 1.0f) / kCols;
    };
    EXPECT_EQ(computed(0), 6);
    EXPECT_EQ(computed(1), 4);
    EXPECT_EQ(out[1][4 * kCols], 7.0f) << "only the first rows are computed";
    EXPECT_EQ(computed(2), 0);
    EXPECT_EQ(computed(3), 6) << "a captured op has no limit";
  }
}

TEST(CpuOps, EveryOpTakesItsRowsFromTheLimit) {
  Backend backend(2);
  const Weights weights(backend.ops, WeightFormat::kQ4_1);
  Step step(weights, 20);
  FewerRows limit({0});
  backend.stream.LimitRows(&limit);
  step.Enqueue(backend.ops, backend.stream);
  EXPECT_EQ(limit.asked(), 13u) << "all ops but the copy";
  EXPECT_THAT(step.hidden, ::testing::Each(0));
  EXPECT_THAT(step.pool, ::testing::Each(0xffff));
  const RowDraw draw{.row = 0, .rule = {}, .key = {}};
  TokenId token = 5;
  backend.ops.Sample(backend.stream, {.logits = step.hidden.data(),
                                      .vocabulary = kCols,
                                      .draws = &draw,
                                      .tokens = &token,
                                      .count = 1});
  EXPECT_EQ(token, 5);
}

TEST(CpuOps, EmbeddingsComeFromTheTableOrFromTheGivenRows) {
  Backend backend(1);
  const Weights weights(backend.ops, WeightFormat::kF32);
  const std::vector<int32_t> ids = {3, 49}, rows = {-1, 1};
  const std::vector<float> embeddings(2 * kCols, 0.5f);
  std::vector<float> out(2 * kCols), expected(kCols);
  backend.ops.EmbedTokens(backend.stream, {weights.embedding, ids.data(), rows.data(),
                                           embeddings.data(), out.data(), 2});
  UnpackRow(weights.embedding, 3, expected.data());
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + kCols), expected);
  EXPECT_EQ(std::vector<float>(out.begin() + kCols, out.end()), std::vector<float>(kCols, 0.5f));

  backend.ops.EmbedTokens(backend.stream,
                          {weights.embedding, ids.data(), nullptr, nullptr, out.data(), 2});
  UnpackRow(weights.embedding, 49, expected.data());
  EXPECT_EQ(std::vector<float>(out.begin() + kCols, out.end()), expected);
}

TEST(CpuOps, RowsAreGatheredWithinABufferOfAnyStride) {
  Backend backend(2);
  std::vector<float> x(6 * 5);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  std::vector<float> expected = x;
  const std::vector<int32_t> indices = {2, 0};
  for (int row = 0; row < 2; ++row) {  // rows 4 and 5
    for (int c = 0; c < 3; ++c) expected[(4 + row) * 5 + c] = x[indices[row] * 5 + c];
  }
  backend.ops.GatherRows(backend.stream, {x.data(), indices.data(), x.data() + 4 * 5, 2, 3, 5});
  EXPECT_EQ(x, expected);
}

// A rank of a tensor-parallel group copies a block with one run for each token and plane.
TEST(CpuOps, AListOfRunsIsOneOperationOfTheStream) {
  Backend backend(1);
  std::vector<std::byte> bytes(64);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  std::vector<std::byte> expected = bytes;
  backend.stream.BeginCapture();
  {
    std::vector<ByteRun> runs;  // gone when the operation runs
    for (int64_t token = 0; token < 8; ++token) {
      runs.push_back({.from = token * 4 + 1, .to = token * 4, .bytes = 2});
      expected[32 + token * 4] = bytes[token * 4 + 1];
      expected[32 + token * 4 + 1] = bytes[token * 4 + 2];
    }
    backend.ops.CopyRuns(backend.stream,
                         {.from = bytes.data(), .to = bytes.data() + 32, .runs = runs});
    backend.ops.CopyRuns(backend.stream, {.from = bytes.data(), .to = bytes.data(), .runs = {}});
  }
  const auto graph = backend.stream.EndCapture();
  EXPECT_EQ(graph->op_count(), 1u);
  backend.stream.Launch(*graph);
  EXPECT_EQ(bytes, expected);
}

TEST(CpuOps, AListOfRowsIsOneOperationOfTheStream) {
  Backend backend(1);
  std::vector<std::byte> from(40);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
  std::vector<std::byte> to(40), expected(40);
  const std::vector<ByteRows> runs = {
      {.from = 2, .to = 0, .bytes = 3, .rows = 4, .from_stride = 5, .to_stride = 3},
      {.from = 30, .to = 20, .bytes = 7}};
  for (int64_t row = 0; row < 4; ++row) {
    std::copy_n(from.begin() + 2 + row * 5, 3, expected.begin() + row * 3);
  }
  std::copy_n(from.begin() + 30, 7, expected.begin() + 20);
  backend.stream.BeginCapture();
  backend.ops.CopyRows(backend.stream, {.from = from.data(), .to = to.data(), .runs = runs});
  const auto graph = backend.stream.EndCapture();
  EXPECT_EQ(graph->op_count(), 1u);
  backend.stream.Launch(*graph);
  EXPECT_EQ(to, expected);
  std::vector<std::byte> by_default(40);
  backend.ops.Ops::CopyRows(backend.stream,
                            {.from = from.data(), .to = by_default.data(), .runs = runs});
  EXPECT_EQ(by_default, expected);
}

TEST(CpuOps, EmptyBatchesDoNothing) {
  Backend backend(2);
  const Weights weights(backend.ops, WeightFormat::kQ8_0);
  std::vector<float> out(2 * kFeedForward, 7);
  backend.ops.MatMul(backend.stream,
                     {.x = {}, .weight = weights.qkv, .out = out.data(), .out_stride = kQkv});
  backend.ops.GatedMatMul(backend.stream, {.product = {.x = {},
                                                       .weight = weights.gate_up,
                                                       .out = out.data(),
                                                       .out_stride = 2 * kFeedForward},
                                           .out = {.f32 = out.data()}});
  backend.ops.RmsNorm(backend.stream, {.cols = kCols, .out = {.f32 = out.data()}});
  backend.ops.GatherRows(backend.stream, {.out = out.data(), .cols = kCols});
  backend.ops.EmbedTokens(backend.stream, {.table = weights.embedding, .out = out.data()});
  EXPECT_THAT(out, ::testing::Each(7));
}

}  // namespace
}  // namespace baton
