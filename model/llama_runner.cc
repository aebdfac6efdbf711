#include "model/llama_runner.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton {
namespace {

// The forms of `buffer` that a reader of this weight needs.
Activations FormsFor(const FusedWeight& reader, Activations buffer) {
  if (!reader.WantsF32()) buffer.f32 = nullptr;
  if (!reader.WantsInt8()) buffer.q8 = nullptr;
  return buffer;
}

std::vector<int32_t> DefaultBuckets(int32_t max_sequences) {
  std::vector<int32_t> buckets;
  for (int32_t size = 1; size < max_sequences; size += size < 8 ? 1 : 4) buckets.push_back(size);
  buckets.push_back(max_sequences);
  return buckets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaRunner>> LlamaRunner::Create(
    const LlamaConfig& config, const LlamaWeights& weights, const KvLayout& layout, std::byte* pool,
    Device& device, const LlamaRunnerOptions& options) {
  std::unique_ptr<LlamaRunner> runner(
      new LlamaRunner(config, weights, layout, pool, device, options));
  ASSIGN_OR_RETURN(runner->buffers_,
                   StepBuffers::Create(config, layout, runner->options_.limits, device));
  return runner;
}

LlamaRunner::LlamaRunner(const LlamaConfig& config, const LlamaWeights& weights,
                         const KvLayout& layout, std::byte* pool, Device& device,
                         const LlamaRunnerOptions& options)
    : config_(config),
      weights_(weights),
      layout_(layout),
      pool_(pool),
      ops_(device.ops()),
      options_(options),
      stream_(device.CreateStream()) {
  StepLimits& limits = options_.limits;
  if (options_.graph_buckets.empty()) {
    options_.graph_buckets = DefaultBuckets(limits.max_sequences);
  }
  limits.max_tokens = std::max(limits.max_tokens, options_.graph_buckets.back());
  limits.max_logit_rows = std::max(limits.max_logit_rows, options_.graph_buckets.back());
}

KvLayerView LlamaRunner::LayerView(int32_t layer) const {
  KvLayerView view;
  view.base = pool_ + layer * layout_.layer_stride() * KvTypeBytes(layout_.group().type);
  view.type = layout_.group().type;
  view.block_size_log2 = layout_.block_size_log2();
  view.block_stride = layout_.block_stride();
  view.token_stride = layout_.token_stride();
  view.head_stride = layout_.head_stride();
  view.value_offset = layout_.value_offset();
  view.scale_offset = layout_.scale_offset();
  return view;
}

void LlamaRunner::Norm(const float* x, const float* weight, const FusedWeight& reader,
                       Activations out, StepRows& rows) {
  ops_.RmsNorm(*stream_, {.x = x,
                          .weight = weight,
                          .epsilon = config_.norm_epsilon,
                          .tokens = rows.Count(),
                          .cols = config_.hidden,
                          .out = FormsFor(reader, out)});
}

void LlamaRunner::Multiply(const Activations& x, const FusedWeight& weight, float* out,
                           StepRows& rows, bool accumulate) {
  for (const WeightPart& part : weight.parts) {
    ops_.MatMul(*stream_, {.x = x,
                           .weight = part.matrix,
                           .out = out + part.column,
                           .out_stride = weight.rows,
                           .tokens = rows.Count(),
                           .accumulate = accumulate});
  }
}

void LlamaRunner::EnqueueKvWrite(const KvLayerView& kv, StepRows& tokens) {
  StepBuffers& b = *buffers_;
  const int64_t head_dim = config_.head_dim;
  const int64_t half = static_cast<int64_t>(config_.rope_frequencies.size());
  const int64_t stride = (int64_t{config_.query_heads} + 2 * config_.kv_heads) * head_dim;
  float* const k = b.qkv + config_.query_heads * head_dim;
  float* const v = k + config_.kv_heads * head_dim;
  // Q and K are adjacent: one rotation turns the heads of both.
  ops_.Rope(*stream_, {.x = b.qkv,
                       .stride = stride,
                       .heads = config_.query_heads + config_.kv_heads,
                       .head_dim = head_dim,
                       .cosines = b.cosines,
                       .sines = b.sines,
                       .half = half,
                       .neighbours = true,
                       .tokens = tokens.Count()});
  ops_.KvWrite(*stream_, {.k = k,
                          .v = v,
                          .stride = stride,
                          .kv_heads = config_.kv_heads,
                          .head_dim = head_dim,
                          .slot_mapping = b.slot_mapping,
                          .kv = kv,
                          .tokens = tokens.Count()});
}

void LlamaRunner::EnqueueAttention(const KvLayerView& kv, StepRows& tokens) {
  StepBuffers& b = *buffers_;
  const int64_t head_dim = config_.head_dim;
  const int64_t stride = (int64_t{config_.query_heads} + 2 * config_.kv_heads) * head_dim;
  ops_.PagedAttention(*stream_, {.q = b.qkv,
                                 .q_stride = stride,
                                 .out = b.attention.f32,
                                 .query_heads = config_.query_heads,
                                 .kv_heads = config_.kv_heads,
                                 .head_dim = head_dim,
                                 .softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                                 .kv = kv,
                                 .sequence_of_token = b.sequence_of_token,
                                 .visible = b.visible,
                                 .block_tables = options_.paged ? b.block_tables : nullptr,
                                 .table_stride = b.table_stride,
                                 .first_block = b.first_block,
                                 .tokens = tokens.Count()});
}

void LlamaRunner::EnqueueGate(const LlamaLayerWeights& layer, StepRows& tokens) {
  StepBuffers& b = *buffers_;
  const Activations activated = FormsFor(layer.down, b.activated);
  if (layer.gate_up.parts.size() == 1) {
    ops_.GatedMatMul(*stream_, {.product = {.x = b.normalized,
                                            .weight = layer.gate_up.parts.front().matrix,
                                            .out = b.gate_up,
                                            .out_stride = layer.gate_up.rows,
                                            .tokens = tokens.Count()},
                                .out = activated});
    return;
  }
  Multiply(b.normalized, layer.gate_up, b.gate_up, tokens, false);
  ops_.SiluMul(*stream_, {.gate_up = b.gate_up,
                          .tokens = tokens.Count(),
                          .cols = config_.feed_forward,
                          .out = activated});
}

void LlamaRunner::EnqueueLayer(int32_t index, StepRows& tokens, const KvWritten& kv_written) {
  StepBuffers& b = *buffers_;
  const LlamaLayerWeights& layer = weights_.layers()[index];
  const KvLayerView kv = LayerView(index);
  Norm(b.hidden, layer.attention_norm, layer.qkv, b.normalized, tokens);
  Multiply(b.normalized, layer.qkv, b.qkv, tokens, false);
  EnqueueKvWrite(kv, tokens);
  if (kv_written && tokens.Count() > 0) {
    stream_->Synchronize();
    kv_written(index + 1, tokens.chunks());
  }
  EnqueueAttention(kv, tokens);
  if (layer.attention_output.WantsInt8()) {
    Activations quantized = b.attention;
    quantized.f32 = nullptr;
    ops_.Quantize(*stream_, b.attention.f32, tokens.Count(),
                  int64_t{config_.query_heads} * config_.head_dim, quantized);
  }
  Multiply(b.attention, layer.attention_output, b.hidden, tokens, true);
  Norm(b.hidden, layer.ffn_norm, layer.gate_up, b.normalized, tokens);
  EnqueueGate(layer, tokens);
  Multiply(b.activated, layer.down, b.hidden, tokens, true);
}

void LlamaRunner::EnqueueLogits(StepRows& logit_rows) {
  StepBuffers& b = *buffers_;
  ops_.GatherRows(*stream_, {.x = b.hidden,
                             .indices = b.logit_indices,
                             .out = b.last_hidden,
                             .rows = logit_rows.Count(),
                             .cols = config_.hidden});
  Norm(b.last_hidden, weights_.output_norm(), weights_.output(), b.last_normalized, logit_rows);
  Multiply(b.last_normalized, weights_.output(), b.logits, logit_rows, false);
}

void LlamaRunner::Enqueue(StepRows tokens, StepRows logit_rows, const KvWritten& kv_written) {
  StepBuffers& b = *buffers_;
  ops_.EmbedTokens(*stream_, {.table = weights_.embedding(),
                              .token_ids = b.token_ids,
                              .out = b.hidden,
                              .tokens = tokens.Count()});
  ops_.RotaryTable(*stream_, {.positions = b.positions,
                              .frequencies = b.rope_frequencies,
                              .cosines = b.cosines,
                              .sines = b.sines,
                              .tokens = tokens.Count(),
                              .half = static_cast<int64_t>(config_.rope_frequencies.size())});
  for (int32_t i = 0; i < config_.layers && tokens.Count() > 0; ++i) {
    EnqueueLayer(i, tokens, kv_written);
  }
  if (logit_rows.Count() > 0) EnqueueLogits(logit_rows);
}

int32_t LlamaRunner::Bucket(int32_t rows) const {
  const auto& buckets = options_.graph_buckets;
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), rows);
  return bucket == buckets.end() ? 0 : *bucket;
}

const OpGraph& LlamaRunner::GraphFor(int32_t bucket) {
  std::unique_ptr<OpGraph>& graph = graphs_[bucket];
  if (graph == nullptr) {
    stream_->BeginCapture();
    Enqueue(StepRows::Fixed(bucket), StepRows::Fixed(bucket), nullptr);
    graph = stream_->EndCapture();
  }
  return *graph;
}

absl::Status LlamaRunner::Run(const StepInput& input) {
  int32_t tokens = 0;
  int32_t logit_rows = 0;
  bool decode = true;
  for (const StepChunk& chunk : input.chunks) {
    tokens += static_cast<int32_t>(chunk.tokens.size());
    logit_rows += chunk.logit_rows;
    decode = decode && chunk.tokens.size() == 1 && chunk.logit_rows == 1;
  }
  CHECK_LE(static_cast<int32_t>(input.chunks.size()), options_.limits.max_sequences);
  CHECK_LE(tokens, options_.limits.max_tokens);
  CHECK_LE(logit_rows, options_.limits.max_logit_rows);
  const int32_t bucket = decode && options_.graph ? Bucket(tokens) : 0;
  const auto abandoned = [&input] { return input.wanted && input.wanted() == 0; };
  if (bucket > 0) {
    // Blocks were allocated before; tables and lengths go to their fixed places, then the graph
    // runs.
    buffers_->Upload(input, bucket, bucket, *stream_);
    stream_->LaunchUntil(GraphFor(bucket), abandoned);
    ++graph_replays_;
  } else {
    buffers_->Upload(input, tokens, logit_rows, *stream_);
    Enqueue(StepRows::Tokens(input), StepRows::Logits(input), input.kv_written);
    ++eager_steps_;
  }
  stream_->Synchronize();
  return abandoned() ? absl::CancelledError("the step was abandoned") : absl::OkStatus();
}

// Leading slots of a piece are contiguous, scales and all.
absl::Status LlamaRunner::CopyBlocks(std::span<const BlockCopy> copies) {
  const int64_t bytes_per_token = layout_.token_stride() * KvTypeBytes(layout_.group().type);
  for (const BlockCopy& copy : copies) {
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      for (const bool value : {false, true}) {
        stream_->Copy(pool_ + layout_.PieceOffset(layer, value, copy.to.value()),
                      pool_ + layout_.PieceOffset(layer, value, copy.from.value()),
                      static_cast<size_t>(copy.tokens * bytes_per_token));
      }
    }
  }
  stream_->Synchronize();
  return absl::OkStatus();
}

std::span<const float> LlamaRunner::LogitsOf(int32_t row) const {
  return {buffers_->logits + int64_t{row} * config_.vocabulary,
          static_cast<size_t>(config_.vocabulary)};
}

}  // namespace baton
