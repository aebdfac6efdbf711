// The ops of a step on synthetic weights: paged attention over a pool, matrix products that
// together exceed the caches, and a whole step of a Llama (decode, or a chunk of prefill) with the
// ops that LlamaRunner enqueues (model/llama/llama_runner.cc). For cuda_bench.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "bench/device_bench.h"

namespace baton {

struct LlamaShape {
  int64_t layers, hidden, heads, kv_heads, head_dim, inner, vocabulary;
  int64_t q_size() const { return heads * head_dim; }
  int64_t qkv_size() const { return (heads + 2 * kv_heads) * head_dim; }
};
inline constexpr LlamaShape kLlama8B = {32, 4096, 32, 8, 128, 14336, 128256};
inline constexpr LlamaShape kTinyLlama = {2, 256, 2, 1, 64, 512, 512};

// One layer's f16 pool with sequences of `context` slots each, and a batch with the last
// `new_tokens` tokens of every sequence: 1 for decode, more for a chunk. Blocks lie in random
// order.
class BenchAttention {
 public:
  BenchAttention(DeviceBench& bench, const LlamaShape& shape, int64_t sequences, int64_t context,
                 int64_t new_tokens, int32_t block_size_log2, bool contiguous)
      : tokens_(sequences * new_tokens) {
    const int64_t slots = int64_t{1} << block_size_log2;
    const int64_t blocks = (context + slots - 1) / slots;
    const int64_t row = shape.kv_heads * shape.head_dim;
    bytes_ = static_cast<double>(sequences * context * row * 2 * 2);
    pool_ = bench.Filled(static_cast<size_t>(sequences * blocks * slots * row * 2 * 2));
    view_ = {.base = pool_->data(),
             .type = KvType::kF16,
             .block_size_log2 = block_size_log2,
             .block_stride = 2 * slots * row,
             .token_stride = row,
             .head_stride = shape.head_dim,
             .value_offset = slots * row};
    std::vector<int32_t> table(sequences * blocks);
    std::iota(table.begin(), table.end(), 0);
    if (!contiguous) std::shuffle(table.begin(), table.end(), bench.random());
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
             .tokens = tokens_};
  }
  double bytes() const { return bytes_; }     // of keys and values that attention reads
  double flops() const { return flops_; }     // of scores and of weighted sums
  int64_t tokens() const { return tokens_; }  // of all sequences
  PagedAttentionArgs Attention(const float* q, int64_t q_stride, float* out) const {
    PagedAttentionArgs args = args_;
    args.q = q;
    args.q_stride = q_stride;
    args.out = out;
    return args;
  }
  KvWriteArgs Write(const float* k, const float* v, int64_t stride) const {
    return {.k = k,
            .v = v,
            .stride = stride,
            .kv_heads = args_.kv_heads,
            .head_dim = args_.head_dim,
            .slot_mapping = slots_->as<int64_t>(),
            .kv = view_,
            .tokens = tokens_};
  }

 private:
  const int64_t tokens_;
  double bytes_ = 0, flops_ = 0;
  KvLayerView view_;
  PagedAttentionArgs args_;
  std::unique_ptr<DeviceBuffer> pool_, table_, sequence_, first_, runs_, rows_, slots_;
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

// A matrix in the device's layout. Its values do not matter for the time.
class BenchMatrix {
 public:
  BenchMatrix(DeviceBench& bench, WeightFormat format, int64_t rows, int64_t cols)
      : data_(bench.Filled(bench.device().ops().PackedBytes(format, rows, cols))),
        matrix_{format, rows, cols, data_->data()} {}
  const PackedMatrix& view() const { return matrix_; }
  double bytes() const { return static_cast<double>(data_->size()); }
  double flops(int64_t tokens) const {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(matrix_.rows * matrix_.cols);
  }

 private:
  const std::unique_ptr<DeviceBuffer> data_;
  const PackedMatrix matrix_;
};

// A step: all layers with weights of their own, the head and a greedy draw for one row of each
// sequence. The head is also the table of embeddings.
class LlamaStep {
 public:
  LlamaStep(DeviceBench& bench, const LlamaShape& shape, WeightFormat format, int64_t sequences,
            int64_t context, int64_t new_tokens, int32_t block_size_log2)
      : bench_(bench),
        shape_(shape),
        format_(format),
        sequences_(sequences),
        tokens_(sequences * new_tokens),
        x_(bench.Filled(tokens_ * shape.hidden * 4)),
        qkv_(bench.Filled(tokens_ * shape.qkv_size() * 4)),
        gate_up_(bench.Filled(tokens_ * shape.inner * 2 * 4)),
        logits_(bench.Filled(sequences * shape.vocabulary * 4)),
        norm_(bench.Filled(shape.hidden * 4)),
        angles_(bench.Filled(tokens_ * shape.head_dim * 4)),
        positions_(bench.Filled(tokens_ * kPositionComponents * 4)),
        frequencies_(bench.Filled(shape.head_dim / 2 * 8)),
        last_(bench.Filled(sequences * shape.hidden * 4)),
        drawn_(bench.Filled(sequences * sizeof(TokenId))),
        of_hidden_(bench, tokens_, shape.hidden),
        of_attention_(bench, tokens_, shape.q_size()),
        of_inner_(bench, tokens_, shape.inner),
        of_last_(bench, sequences, shape.hidden),
        head_(bench, format, shape.vocabulary, shape.hidden) {
    std::vector<RowDraw> draws(sequences);
    std::vector<int32_t> last_rows(sequences);
    std::vector<int32_t> token_ids(tokens_);
    for (int64_t i = 0; i < tokens_; ++i) {
      token_ids[i] = static_cast<int32_t>(i % shape.vocabulary);
    }
    for (int64_t i = 0; i < sequences; ++i) {
      last_rows[i] = static_cast<int32_t>((i + 1) * new_tokens - 1);
      draws[i].row = static_cast<int32_t>(i);
      draws[i].rule.temperature = 0;
    }
    draws_ = bench.Holding(draws);
    last_rows_ = bench.Holding(last_rows);
    token_ids_ = bench.Holding(token_ids);
    bytes_ = head_.bytes();
    flops_ = head_.flops(sequences);
    for (int64_t i = 0; i < shape.layers; ++i) {
      layers_.push_back(std::make_unique<Layer>(bench, shape, format, sequences, context,
                                                new_tokens, block_size_log2));
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
    Layer(DeviceBench& bench, const LlamaShape& s, WeightFormat format, int64_t sequences,
          int64_t context, int64_t new_tokens, int32_t block_size_log2)
        : qkv(bench, format, s.qkv_size(), s.hidden),
          out(bench, format, s.hidden, s.q_size()),
          gate_up(bench, format, 2 * s.inner, s.hidden),
          down(bench, format, s.hidden, s.inner),
          batch(bench, s, sequences, context, new_tokens, block_size_log2, false) {}
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
    float* const k = q + shape_.q_size();
    float* const v = k + shape_.kv_heads * shape_.head_dim;
    float* const attention = of_attention_.view().f32;
    Norm(ops, stream, x, of_hidden_, tokens_);
    ops.MatMul(stream, Product(of_hidden_, layer.qkv, q, false));
    // Q and K are adjacent, so one op rotates the heads of both.
    ops.Rope(stream, {.x = q,
                      .stride = shape_.qkv_size(),
                      .heads = shape_.heads + shape_.kv_heads,
                      .head_dim = shape_.head_dim,
                      .cosines = cosines(),
                      .sines = sines(),
                      .half = shape_.head_dim / 2,
                      .neighbours = true,
                      .tokens = tokens_});
    ops.KvWrite(stream, layer.batch.Write(k, v, shape_.qkv_size()));
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
  const std::unique_ptr<DeviceBuffer> x_, qkv_, gate_up_, logits_, norm_, angles_, positions_,
      frequencies_, last_, drawn_;
  const BenchActivations of_hidden_, of_attention_, of_inner_, of_last_;
  const BenchMatrix head_;
  std::unique_ptr<DeviceBuffer> draws_, last_rows_, token_ids_;
  std::vector<std::unique_ptr<Layer>> layers_;
  double bytes_ = 0, flops_ = 0;
};

}  // namespace baton
