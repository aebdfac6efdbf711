// The ops of a step on synthetic weights: paged attention over a pool, matrix products that
// together exceed the caches, and a step of a Llama (decode, or a chunk of prefill) with the ops
// that LlamaRunner enqueues for the layers, the head and the draws (model/llama/llama_runner.cc).
// For cuda_bench.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "bench/device_bench.h"
#include "bench/random_weights.h"

namespace baton {

struct LlamaShape {
  int64_t layers, hidden, heads, kv_heads, head_dim, inner, vocabulary;
  int64_t q_size() const { return heads * head_dim; }
  int64_t qkv_size() const { return (heads + 2 * kv_heads) * head_dim; }
};
inline constexpr LlamaShape kLlama8B = {32, 4096, 32, 8, 128, 14336, 128256};
inline constexpr LlamaShape kTinyLlama = {2, 256, 2, 1, 64, 512, 512};

struct BenchBatch {
  int64_t sequences = 1;
  int64_t context = 0;     // slots of each sequence
  int64_t new_tokens = 1;  // of each sequence: 1 for decode, more for a chunk
  int32_t block_size_log2 = 6;
  bool contiguous = false;  // without block tables
  bool one_prefix = false;  // all sequences have the same blocks
  bool shares = false;      // with one prefix: attention knows what the sequences share
};

// One layer's f16 pool with the sequences of a batch, and the batch with the last tokens of each.
// Blocks lie in random order.
class BenchAttention {
 public:
  BenchAttention(DeviceBench& bench, const LlamaShape& shape, const BenchBatch& batch)
      : tokens_(batch.sequences * batch.new_tokens) {
    const auto& [sequences, context, new_tokens, block_size_log2, contiguous, one_prefix, shares] =
        batch;
    const int64_t slots = int64_t{1} << block_size_log2;
    const int64_t blocks = (context + slots - 1) / slots;
    const int64_t row = shape.kv_heads * shape.head_dim;
    const int64_t prefixes = one_prefix ? 1 : sequences;
    read_bytes_ = static_cast<double>(sequences * context * row * 2 * 2);
    bytes_ = static_cast<double>(prefixes * context * row * 2 * 2);
    pool_ =
        bench.Filled(static_cast<size_t>(prefixes * blocks * slots * row * 2 * 2), Numbers::kF16);
    view_ = {.base = pool_->data(),
             .type = KvType::kF16,
             .block_size_log2 = block_size_log2,
             .block_stride = 2 * slots * row,
             .token_stride = row,
             .head_stride = shape.head_dim,
             .value_offset = slots * row};
    std::vector<int32_t> table(prefixes * blocks);
    std::iota(table.begin(), table.end(), 0);
    if (!contiguous) std::shuffle(table.begin(), table.end(), bench.random());
    for (int64_t i = prefixes; i < sequences; ++i) {
      for (int64_t block = 0; block < blocks; ++block) table.push_back(table[block]);
    }
    std::vector<int32_t> first(sequences), sequence;
    std::vector<VisibleRun> runs(sequences);
    std::vector<RowRuns> rows;
    std::vector<int64_t> slot_of_token;
    double seen = 0;  // slots that all rows see
    for (int64_t i = 0; i < sequences; ++i) {
      first[i] = static_cast<int32_t>(i * blocks);
      runs[i].end = static_cast<int32_t>(context);
      for (int64_t slot = context - new_tokens; slot < context; ++slot) {
        sequence.push_back(static_cast<int32_t>(i));
        rows.push_back({static_cast<int32_t>(i), 1, 0, static_cast<int32_t>(slot + 1)});
        slot_of_token.push_back(int64_t{table[i * blocks + slot / slots]} * slots + slot % slots);
        seen += static_cast<double>(slot + 1);
      }
    }
    flops_ = 4 * seen * static_cast<double>(shape.q_size());
    table_ = bench.Holding(table);
    sequence_ = bench.Holding(sequence);
    first_ = bench.Holding(first);
    runs_ = bench.Holding(runs);
    rows_ = bench.Holding(rows);
    slots_ = bench.Holding(slot_of_token);
    const int64_t group = int64_t{kT1GroupSegments} * kAttentionSegment;
    std::vector<int32_t> shared(
        tokens_, static_cast<int32_t>((context - new_tokens + 1) / group * kT1GroupSegments));
    shared[0] = 0;
    if (one_prefix && shares) shared_ = bench.Holding(shared);
    args_ = {.query_heads = shape.heads,
             .kv_heads = shape.kv_heads,
             .head_dim = shape.head_dim,
             .softmax_scale = 0.0883883f,
             .kv = view_,
             .sequence_of_token = sequence_->as<int32_t>(),
             .runs = runs_->as<VisibleRun>(),
             .row_runs = rows_->as<RowRuns>(),
             .block_tables = contiguous ? nullptr : table_->as<int32_t>(),
             .table_stride = blocks,
             .first_block = contiguous ? first_->as<int32_t>() : nullptr,
             .shared_segments = shared_ != nullptr ? shared_->as<int32_t>() : nullptr,
             .tokens = tokens_};
  }
  double bytes() const { return bytes_; }            // of the keys and values that attention reads
  double read_bytes() const { return read_bytes_; }  // the same, counted for each sequence
  double flops() const { return flops_; }            // of scores and of weighted sums
  int64_t tokens() const { return tokens_; }         // of all sequences
  PagedAttentionArgs Attention(const float* q, int64_t q_stride, float* out) const {
    PagedAttentionArgs args = args_;
    args.q = q;
    args.q_stride = q_stride;
    args.out = out;
    return args;
  }
  // The pool as LaunchTensorCoreAttention describes it to the driver.
  TiledTensor Tiles() const {
    const int64_t slots = int64_t{1} << view_.block_size_log2;
    const auto bytes = [](int64_t elements) { return static_cast<uint64_t>(2 * elements); };
    return {.address = view_.base,
            .element_bytes = 2,
            .rank = 5,
            .sizes = {static_cast<uint64_t>(args_.head_dim), static_cast<uint64_t>(slots),
                      static_cast<uint64_t>(args_.kv_heads), 2, uint64_t{1} << 31},
            .stride_bytes = {0, bytes(view_.token_stride), bytes(view_.head_stride),
                             bytes(view_.value_offset), bytes(view_.block_stride)},
            .box = {64, static_cast<uint32_t>(slots), 1, 1, 1},
            .swizzle = SharedSwizzle::k128Bytes};
  }
  RopeKvWriteArgs Write(float* qkv, int64_t stride, const float* cosines,
                        const float* sines) const {
    return {.qk = qkv,
            .v = qkv + (args_.query_heads + args_.kv_heads) * args_.head_dim,
            .stride = stride,
            .query_heads = args_.query_heads,
            .kv_heads = args_.kv_heads,
            .head_dim = args_.head_dim,
            .cosines = cosines,
            .sines = sines,
            .half = args_.head_dim / 2,
            .neighbours = true,
            .slot_mapping = slots_->as<int64_t>(),
            .kv = view_,
            .tokens = tokens_};
  }

 private:
  const int64_t tokens_;
  double bytes_ = 0, read_bytes_ = 0, flops_ = 0;
  KvLayerView view_;
  PagedAttentionArgs args_;
  std::unique_ptr<DeviceBuffer> pool_, table_, sequence_, first_, runs_, rows_, slots_, shared_;
};

// Activations of every form, with harmless contents. A writer fills only the form that the reader
// needs, as in the engine: other forms would cost time, and the gate would not be fused.
class BenchActivations {
 public:
  BenchActivations(DeviceBench& bench, int64_t tokens, int64_t cols)
      : f32_(bench.Filled(tokens * cols * 4)),
        q8_(bench.Filled(tokens * cols)),
        scale_(bench.Filled(tokens * cols / 8)),
        sum_(bench.Filled(tokens * cols / 8)) {}
  Activations view() const {
    return {f32_->as<float>(), q8_->as<int8_t>(), scale_->as<float>(), sum_->as<float>()};
  }
  Activations FormOf(WeightFormat reader) const {
    Activations form = view();
    if (IsQuantized(reader)) {
      form.f32 = nullptr;
    } else {
      form.q8 = nullptr;
    }
    return form;
  }

 private:
  const std::unique_ptr<DeviceBuffer> f32_, q8_, scale_, sum_;
};

// A matrix of random weights in the device's layout. The same few rows repeat.
class BenchMatrix {
 public:
  BenchMatrix(DeviceBench& bench, WeightFormat format, int64_t rows, int64_t cols)
      : data_(MakeData(bench, format, rows, cols)), matrix_{format, rows, cols, data_->data()} {}
  const PackedMatrix& view() const { return matrix_; }
  double bytes() const { return static_cast<double>(data_->size()); }
  double flops(int64_t tokens) const {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(matrix_.rows * matrix_.cols);
  }

 private:
  static std::unique_ptr<DeviceBuffer> MakeData(DeviceBench& bench, WeightFormat format,
                                                int64_t rows, int64_t cols) {
    const Ops& ops = bench.device().ops();
    const std::span<const std::byte> packed =
        bench.Pattern(std::string(WeightFormatName(format)) + std::to_string(cols), [&] {
          const int64_t made = 64;
          const std::vector<std::byte> source = RandomWeights(format, made, cols, bench.random());
          std::vector<std::byte> pattern(ops.PackedBytes(format, made, cols));
          ops.PackMatrix(format, made, cols, source.data(), pattern.data());
          return pattern;
        });
    return bench.Repeating(packed, ops.PackedBytes(format, rows, cols));
  }

  const std::unique_ptr<DeviceBuffer> data_;
  const PackedMatrix matrix_;
};

// A step: all layers with weights of their own, the head and a greedy draw for one row of each
// sequence. The head is also the table of embeddings.
class LlamaStep {
 public:
  LlamaStep(DeviceBench& bench, const LlamaShape& shape, WeightFormat format,
            const BenchBatch& batch)
      : bench_(bench),
        shape_(shape),
        format_(format),
        sequences_(batch.sequences),
        tokens_(batch.sequences * batch.new_tokens),
        x_(bench.Filled(tokens_ * shape.hidden * 4)),
        qkv_(bench.Filled(tokens_ * shape.qkv_size() * 4)),
        gate_up_(bench.Filled(tokens_ * shape.inner * 2 * 4)),
        logits_(bench.Filled(sequences_ * shape.vocabulary * 4)),
        norm_(bench.Filled(shape.hidden * 4)),
        angles_(bench.Filled(tokens_ * shape.head_dim * 4)),
        last_(bench.Filled(sequences_ * shape.hidden * 4)),
        drawn_(bench.Zeros(sequences_ * sizeof(TokenId))),
        of_hidden_(bench, tokens_, shape.hidden),
        of_attention_(bench, tokens_, shape.q_size()),
        of_inner_(bench, tokens_, shape.inner),
        of_last_(bench, sequences_, shape.hidden),
        head_(bench, format, shape.vocabulary, shape.hidden) {
    std::vector<RowDraw> draws(sequences_);
    std::vector<int32_t> last_rows(sequences_);
    std::vector<int32_t> token_ids(tokens_);
    std::vector<int32_t> positions(tokens_ * kPositionComponents);
    std::vector<double> frequencies(shape.head_dim / 2);
    for (int64_t i = 0; i < tokens_; ++i) {
      token_ids[i] = static_cast<int32_t>(i * 7919 % shape.vocabulary);
      const int64_t slot = batch.context - batch.new_tokens + i % batch.new_tokens;
      for (int component = 0; component < kPositionComponents; ++component) {
        positions[i * kPositionComponents + component] = static_cast<int32_t>(slot);
      }
    }
    for (size_t i = 0; i < frequencies.size(); ++i) {
      frequencies[i] =
          std::pow(500'000.0, -static_cast<double>(i) / static_cast<double>(frequencies.size()));
    }
    for (int64_t i = 0; i < sequences_; ++i) {
      last_rows[i] = static_cast<int32_t>((i + 1) * batch.new_tokens - 1);
      draws[i].row = static_cast<int32_t>(i);
      draws[i].rule.temperature = 0;
    }
    draws_ = bench.Holding(draws);
    last_rows_ = bench.Holding(last_rows);
    token_ids_ = bench.Holding(token_ids);
    positions_ = bench.Holding(positions);
    frequencies_ = bench.Holding(frequencies);
    bytes_ = head_.bytes();
    flops_ = head_.flops(sequences_);
    for (int64_t i = 0; i < shape.layers; ++i) {
      layers_.push_back(std::make_unique<Layer>(bench, shape, format, batch));
      bytes_ += layers_.back()->bytes();
      flops_ += layers_.back()->flops(tokens_);
    }
  }
  double bytes() const { return bytes_; }  // weights, keys and values: each is read once
  double flops() const { return flops_; }  // of matrix products and attention

  void Enqueue() {
    const Ops& ops = bench_.device().ops();
    Stream& stream = bench_.stream();
    ops.EmbedTokens(stream, {.table = head_.view(),
                             .token_ids = token_ids_->as<int32_t>(),
                             .out = x_->as<float>(),
                             .tokens = tokens_});
    ops.RotaryTable(stream, {.positions = positions_->as<int32_t>(),
                             .frequencies = frequencies_->as<double>(),
                             .cosines = cosines(),
                             .sines = sines(),
                             .tokens = tokens_,
                             .half = shape_.head_dim / 2});
    for (const auto& layer : layers_) RunLayer(ops, stream, *layer);
    ops.GatherRows(stream, {.x = x_->as<float>(),
                            .indices = last_rows_->as<int32_t>(),
                            .out = last_->as<float>(),
                            .rows = sequences_,
                            .cols = shape_.hidden});
    Norm(ops, stream, last_->as<float>(), of_last_, sequences_);
    ops.MatMul(stream, Product(of_last_, head_, logits_->as<float>(), false, sequences_));
    ops.Sample(stream, {.logits = logits_->as<float>(),
                        .vocabulary = shape_.vocabulary,
                        .draws = draws_->as<RowDraw>(),
                        .tokens = drawn_->as<TokenId>(),
                        .count = sequences_});
  }

 private:
  struct Layer {
    Layer(DeviceBench& bench, const LlamaShape& s, WeightFormat format, const BenchBatch& of)
        : qkv(bench, format, s.qkv_size(), s.hidden),
          out(bench, format, s.hidden, s.q_size()),
          gate_up(bench, format, 2 * s.inner, s.hidden),
          down(bench, format, s.hidden, s.inner),
          batch(bench, s, of) {}
    double bytes() const {
      return qkv.bytes() + out.bytes() + gate_up.bytes() + down.bytes() + batch.bytes();
    }
    double flops(int64_t tokens) const {
      return qkv.flops(tokens) + out.flops(tokens) + gate_up.flops(tokens) + down.flops(tokens) +
             batch.flops();
    }
    const BenchMatrix qkv, out, gate_up, down;
    const BenchAttention batch;
  };

  MatMulArgs Product(const BenchActivations& x, const BenchMatrix& weight, float* out,
                     bool accumulate, int64_t tokens = 0) const {
    return {.x = x.view(),
            .weight = weight.view(),
            .out = out,
            .out_stride = weight.view().rows,
            .tokens = tokens == 0 ? tokens_ : tokens,
            .accumulate = accumulate};
  }
  void Norm(const Ops& ops, Stream& stream, const float* x, const BenchActivations& out,
            int64_t tokens) const {
    ops.RmsNorm(stream, {.x = x,
                         .weight = norm_->as<float>(),
                         .epsilon = 1e-5f,
                         .tokens = tokens,
                         .cols = shape_.hidden,
                         .out = out.FormOf(format_)});
  }
  float* cosines() const { return angles_->as<float>(); }
  float* sines() const { return cosines() + tokens_ * (shape_.head_dim / 2); }

  void RunLayer(const Ops& ops, Stream& stream, const Layer& layer) const {
    float* const x = x_->as<float>();
    float* const q = qkv_->as<float>();
    float* const attention = of_attention_.view().f32;
    Norm(ops, stream, x, of_hidden_, tokens_);
    ops.MatMul(stream, Product(of_hidden_, layer.qkv, q, false));
    ops.RopeKvWrite(stream, layer.batch.Write(q, shape_.qkv_size(), cosines(), sines()));
    ops.PagedAttention(stream, layer.batch.Attention(q, shape_.qkv_size(), attention));
    if (IsQuantized(format_)) {
      ops.Quantize(stream, attention, tokens_, shape_.q_size(), of_attention_.FormOf(format_));
    }
    ops.MatMul(stream, Product(of_attention_, layer.out, x, true));
    Norm(ops, stream, x, of_hidden_, tokens_);
    ops.GatedMatMul(stream,
                    {.product = Product(of_hidden_, layer.gate_up, gate_up_->as<float>(), false),
                     .out = of_inner_.FormOf(format_)});
    ops.MatMul(stream, Product(of_inner_, layer.down, x, true));
  }

  DeviceBench& bench_;
  const LlamaShape shape_;
  const WeightFormat format_;
  const int64_t sequences_, tokens_;
  const std::unique_ptr<DeviceBuffer> x_, qkv_, gate_up_, logits_, norm_, angles_, last_, drawn_;
  const BenchActivations of_hidden_, of_attention_, of_inner_, of_last_;
  const BenchMatrix head_;
  std::unique_ptr<DeviceBuffer> draws_, last_rows_, token_ids_, positions_, frequencies_;
  std::vector<std::unique_ptr<Layer>> layers_;
  double bytes_ = 0, flops_ = 0;
};

}  // namespace baton
