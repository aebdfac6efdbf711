#include "model/llama/llama_runner.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/status_macros.h"
#include "model/block_copy_runs.h"
#include "model/kv_heads.h"
#include "model/shift_groups.h"

namespace baton {
namespace {

// Returns the forms of `buffer` that a reader of this weight needs.
Activations FormsFor(const FusedWeight& reader, Activations buffer) {
  if (!reader.WantsF32()) buffer.f32 = nullptr;
  if (!reader.WantsInt8()) buffer.q8 = nullptr;
  return buffer;
}

TensorRank RankOf(const Communicator* communicator) {
  return communicator == nullptr ? TensorRank() : communicator->rank();
}

DecoderConfig DecoderOf(const LlamaConfig& model, TensorRank rank) {
  DecoderConfig decoder = model.OfRank(rank).Decoder();
  if (rank.degree > 1) {
    decoder.all_query_heads = model.query_heads;
    decoder.all_kv_heads = model.kv_heads;
    decoder.all_feed_forward = model.feed_forward;
  }
  return decoder;
}

std::vector<int32_t> DefaultBuckets(int32_t max_sequences) {
  std::vector<int32_t> buckets;
  for (int32_t size = 1; size < max_sequences; size += size < 8 ? 1 : 4) buckets.push_back(size);
  buckets.push_back(max_sequences);
  return buckets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaRunner>> LlamaRunner::Create(const LlamaConfig& config,
                                                                 const LlamaWeights& weights,
                                                                 const KvPoolLayout& layout,
                                                                 std::byte* pool, Device& device,
                                                                 const ModelRunnerOptions& options,
                                                                 Communicator* communicator) {
  CHECK(communicator == nullptr || device.asynchronous()) << "a rank would wait for itself";
  std::unique_ptr<LlamaRunner> runner(
      new LlamaRunner(config, weights, layout, pool, device, options, communicator));
  ASSIGN_OR_RETURN(runner->buffers_,
                   StepBuffers::Create(runner->decoder_, layout, runner->options_.limits, device));
  const StepLimits& limits = runner->options_.limits;
  ASSIGN_OR_RETURN(runner->draws_,
                   DrawBuffers::Create(limits.max_draws, limits.max_tokens, device));
  // The host's memory is taken as it is needed, and graphs at their first use.
  if (!device.host_accessible()) RETURN_IF_ERROR(runner->WarmUp());
  return runner;
}

LlamaRunner::LlamaRunner(const LlamaConfig& config, const LlamaWeights& weights,
                         const KvPoolLayout& layout, std::byte* pool, Device& device,
                         const ModelRunnerOptions& options, Communicator* communicator)
    : config_(config.OfRank(RankOf(communicator))),
      weights_(weights),
      layout_(layout),
      pool_(pool),
      device_(device),
      ops_(device.ops()),
      options_(options),
      communicator_(communicator),
      rank_(RankOf(communicator)),
      pool_rank_(RankInPool(rank_, layout, config.kv_heads)),
      decoder_(DecoderOf(config, rank_)),
      vocabulary_(config.vocabulary),
      stream_(device.CreateStream()) {
  for (auto& step : steps_) step = std::make_unique<SubmittedStep>(device, config.layers);
  StepLimits& limits = options_.limits;
  if (options_.graph_buckets.empty()) {
    options_.graph_buckets = DefaultBuckets(limits.max_sequences);
  }
  limits.max_tokens = std::max(limits.max_tokens, options_.graph_buckets.back());
  limits.max_logit_rows = std::max(limits.max_logit_rows, options_.graph_buckets.back());
  limits.max_draws = std::max(limits.max_draws, limits.max_logit_rows);
  const bool compares = limits.max_compared_rows > 0 && CanCompare();
  limits.max_compared_rows = compares ? limits.max_tokens : 0;
  limits.shares_prefixes = CanShare(kLeastSharingRows);
}

LlamaRunner::LayerKv LlamaRunner::KvOf(int32_t layer) const {
  const KvLayout& group = layout_.layout_of(layer);
  KvLayerView view = {.base = pool_ + layout_.PieceOffset(layer, /*plane=*/0, /*block=*/0),
                      .type = group.group().type,
                      .block_size_log2 = group.block_size_log2(),
                      .block_stride = group.block_stride(),
                      .token_stride = group.token_stride(),
                      .head_stride = group.head_stride(),
                      .value_offset = group.value_offset(),
                      .scale_offset = group.scale_offset()};
  return {.view = FromHead(view, HeadsOf(pool_rank_, group).first),
          .inputs = buffers_->groups[layout_.place(layer).group]};
}

void LlamaRunner::Norm(const float* x, const float* weight, const FusedWeight& reader,
                       Activations out, StepRows& rows) {
  ops_.RmsNorm(*stream_, {.x = x,
                          .weight = weight,
                          .epsilon = config_.norm_epsilon,
                          .tokens = rows.most(),
                          .cols = config_.hidden,
                          .out = FormsFor(reader, out)});
}

void LlamaRunner::Multiply(const Activations& x, const FusedWeight& weight, float* out,
                           int64_t out_stride, StepRows& rows, bool accumulate) {
  for (const WeightPart& part : weight.parts) {
    ops_.MatMul(*stream_, {.x = x,
                           .weight = part.matrix,
                           .out = out + part.column,
                           .out_stride = out_stride,
                           .tokens = rows.most(),
                           .accumulate = accumulate});
  }
}

void LlamaRunner::QuantizeFor(const FusedWeight& reader, const Activations& rows, int64_t cols,
                              StepRows& tokens) {
  if (!reader.WantsInt8()) return;
  Activations quantized = rows;
  quantized.f32 = nullptr;
  ops_.Quantize(*stream_, rows.f32, tokens.most(), cols, quantized);
}

void LlamaRunner::EnqueueKvWrite(const LayerKv& kv, StepRows& tokens) {
  StepBuffers& b = *buffers_;
  const int64_t head_dim = config_.head_dim;
  ops_.RopeKvWrite(*stream_, {.qk = b.qkv,
                              .v = b.qkv + (config_.query_heads + config_.kv_heads) * head_dim,
                              .stride = QkvStride(),
                              .query_heads = config_.query_heads,
                              .kv_heads = config_.kv_heads,
                              .head_dim = head_dim,
                              .cosines = b.cosines,
                              .sines = b.sines,
                              .half = static_cast<int64_t>(config_.rope_frequencies.size()),
                              .neighbours = true,
                              .slot_mapping = kv.inputs.slot_mapping,
                              .kv = kv.view,
                              .tokens = tokens.most()});
}

void LlamaRunner::EnqueueAttention(const LayerKv& kv, const Rows& rows) {
  StepBuffers& b = *buffers_;
  const bool tables = options_.paged || rows.tables;
  const int64_t head_dim = config_.head_dim;
  ops_.PagedAttention(*stream_,
                      {.q = b.qkv,
                       .q_stride = QkvStride(),
                       .out = b.attention.f32,
                       .query_heads = config_.query_heads,
                       .kv_heads = config_.kv_heads,
                       .head_dim = head_dim,
                       .softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                       .kv = kv.view,
                       .sequence_of_token = b.sequence_of_token,
                       .runs = b.runs,
                       .row_runs = kv.inputs.row_runs,
                       .block_tables = tables ? kv.inputs.block_tables : nullptr,
                       .table_stride = b.table_stride,
                       .first_block = kv.inputs.first_block,
                       .shared_segments = rows.shares ? kv.inputs.shared_segments : nullptr,
                       .tokens = rows.tokens.most()});
}

void LlamaRunner::EnqueueGate(const LlamaLayerWeights& layer, StepRows& tokens) {
  StepBuffers& b = *buffers_;
  // A group of int8 values may have columns of several ranks, so ranks gather f32.
  const Activations activated = communicator_ == nullptr ? FormsFor(layer.down, b.activated)
                                                         : Activations{.f32 = b.activated.f32};
  if (layer.gate_up.parts.size() == 1) {
    ops_.GatedMatMul(*stream_, {.product = {.x = b.normalized,
                                            .weight = layer.gate_up.parts.front().matrix,
                                            .out = b.gate_up,
                                            .out_stride = layer.gate_up.rows,
                                            .tokens = tokens.most()},
                                .out = activated});
    return;
  }
  Multiply(b.normalized, layer.gate_up, b.gate_up, layer.gate_up.rows, tokens, false);
  ops_.SiluMul(*stream_, {.gate_up = b.gate_up,
                          .tokens = tokens.most(),
                          .cols = config_.feed_forward,
                          .out = activated});
}

void LlamaRunner::RecordLayer(const Rows& rows) {
  if (rows.step == nullptr) return;
  rows.step->RecordLayer(*stream_, waker_);
  if (!device_.asynchronous()) rows.step->TellLayers();
}

void LlamaRunner::EnqueueLayer(int32_t index, const Rows& rows) {
  EnqueueKv(index, rows);
  EnqueueBehindKv(index, rows);
}

void LlamaRunner::EnqueueKv(int32_t index, const Rows& rows) {
  StepBuffers& b = *buffers_;
  const LlamaLayerWeights& layer = weights_.layers()[index];
  Norm(b.hidden, layer.attention_norm, layer.qkv, b.normalized, rows.tokens);
  Multiply(b.normalized, layer.qkv, b.qkv, layer.qkv.rows, rows.tokens, false);
  EnqueueShiftedQueries(rows);
  EnqueueKvWrite(KvOf(index), rows.tokens);
  if (communicator_ == nullptr) RecordLayer(rows);
}

void LlamaRunner::EnqueueBehindKv(int32_t index, const Rows& rows) {
  StepBuffers& b = *buffers_;
  StepRows& tokens = rows.tokens;
  const LlamaLayerWeights& layer = weights_.layers()[index];
  EnqueueAttention(KvOf(index), rows);
  const int64_t attention_cols = int64_t{config_.query_heads} * config_.head_dim;
  GatherColumns(b.attention.f32, attention_cols, b.all_attention.f32, attention_cols * rank_.degree,
                tokens);
  if (communicator_ != nullptr) RecordLayer(rows);  // now all ranks have written their heads
  QuantizeFor(layer.attention_output, b.all_attention, attention_cols * rank_.degree, tokens);
  AddToHidden(b.all_attention, layer.attention_output, tokens);
  Norm(b.hidden, layer.ffn_norm, layer.gate_up, b.normalized, tokens);
  EnqueueGate(layer, tokens);
  if (communicator_ != nullptr) {
    GatherColumns(b.activated.f32, config_.feed_forward, b.all_activated.f32,
                  decoder_.all_feed_forward, tokens);
    QuantizeFor(layer.down, b.all_activated, decoder_.all_feed_forward, tokens);
  }
  AddToHidden(b.all_activated, layer.down, tokens);
}

void LlamaRunner::EnqueueLogits(StepRows& logit_rows) {
  StepBuffers& b = *buffers_;
  ops_.GatherRows(*stream_, {.x = b.hidden,
                             .indices = b.logit_indices,
                             .out = b.last_hidden,
                             .rows = logit_rows.most(),
                             .cols = config_.hidden});
  Norm(b.last_hidden, weights_.output_norm(), weights_.output(), b.last_normalized, logit_rows);
  Multiply(b.last_normalized, weights_.output(), b.logits, config_.vocabulary, logit_rows, false);
  GatherLogits(logit_rows);
}

void LlamaRunner::EnqueueInputs(const Rows& rows) {
  StepBuffers& b = *buffers_;
  const int64_t half = static_cast<int64_t>(config_.rope_frequencies.size());
  if (rank_.rank == 0) {
    ops_.EmbedTokens(*stream_, {.table = weights_.embedding(),
                                .token_ids = b.token_ids,
                                .embedding_rows = rows.embeddings ? b.embedding_rows : nullptr,
                                .embeddings = b.embeddings,
                                .out = b.hidden,
                                .tokens = rows.tokens.most()});
  }
  BroadcastHidden(rows.tokens);
  ops_.RotaryTable(*stream_, {.positions = b.positions,
                              .frequencies = b.rope_frequencies,
                              .cosines = b.cosines,
                              .sines = b.sines,
                              .tokens = rows.tokens.most(),
                              .half = half,
                              .factor = config_.rope_attention_factor});
  if (const int64_t shifted = rows.shifted_queries.most(); shifted > 0) {
    const int64_t first = b.first_shifted_query;
    stream_->LimitRows(&rows.shifted_queries);
    ops_.RotaryTable(*stream_, {.positions = b.positions + first * kPositionComponents,
                                .frequencies = b.rope_frequencies,
                                .cosines = b.cosines + first * half,
                                .sines = b.sines + first * half,
                                .tokens = shifted,
                                .half = half,
                                .factor = config_.rope_attention_factor});
    stream_->LimitRows(&rows.tokens);
  }
}

void LlamaRunner::Enqueue(const Rows& rows) {
  stream_->LimitRows(&rows.tokens);
  EnqueueInputs(rows);
  if (rows.compares) {
    EnqueueComparison(rows);
  } else {
    for (int32_t i = 0; i < config_.layers; ++i) EnqueueLayer(i, rows);
  }
  stream_->LimitRows(&rows.logits);
  if (rows.logits.most() > 0) EnqueueLogits(rows.logits);
  stream_->LimitRows(nullptr);
}

int32_t LlamaRunner::max_in_flight() const { return device_.asynchronous() ? kStepSlots : 1; }

absl::StatusOr<StepId> LlamaRunner::Submit(const StepInput& input) {
  CHECK_LT(last_.value() - collected_.value(), max_in_flight()) << "steps are uncollected";
  const StepId id(last_.value() + 1);
  const int slot = SlotOf(id);
  RETURN_IF_ERROR(device_.Health());
  if (absl::Status enqueued = UploadAndEnqueue(input, id, slot); !enqueued.ok()) {
    stream_->Synchronize();  // afterwards the slot is free again
    return enqueued;
  }
  last_ = id;
  SubmittedStep& step = *steps_[slot];
  draws_->Sample(buffers_->logits, config_.vocabulary, slot, step.draws(), *stream_);
  draws_->Fetch(slot, *stream_);
  kept_[slot] = absl::OkStatus();
  if (device_.asynchronous()) {
    kept_[slot] =
        saved_logits_[slot].Keep(input, buffers_->logits, config_.vocabulary, device_, *stream_);
  }
  if (step.compared_rows() > 0) kept_[slot].Update(KeepChanges(slot));
  step.RecordEnd(*stream_, waker_);
  return id;
}

absl::Status LlamaRunner::UploadAndEnqueue(const StepInput& input, StepId id, int slot) {
  RETURN_IF_ERROR(buffers_->Check(input));
  int32_t tokens = 0;
  int32_t logit_rows = 0;
  bool embeddings = false;
  bool decode = true;
  bool scattered = false;
  for (const StepChunk& chunk : input.chunks) {
    tokens += static_cast<int32_t>(chunk.tokens.size());
    logit_rows += chunk.logit_rows;
    embeddings = embeddings || !chunk.embeddings.empty();
    scattered = scattered || !chunk.runs.empty();
    decode =
        decode && chunk.tokens.size() == 1 && chunk.logit_rows == 1 && ShiftedQueriesOf(chunk) == 0;
    CHECK(!chunk.token_from || (chunk.token_from->step == last_ && last_ != collected_))
        << "token_from must name the step submitted just before";
  }
  CHECK_LE(static_cast<int32_t>(input.chunks.size()),
           options_.limits.max_sequences + options_.limits.max_parts);
  CHECK_LE(tokens, options_.limits.max_tokens);
  CHECK_LE(logit_rows, options_.limits.max_logit_rows);
  const bool tables = scattered && !options_.paged;
  const bool replays = decode && !embeddings && !tables && options_.graph;
  const int32_t bucket = replays ? Bucket(tokens) : 0;
  SubmittedStep& step = *steps_[slot];
  step.Begin(id, input);
  // Blocks were allocated before. The copies bring tables and lengths to their fixed places.
  RETURN_IF_ERROR(draws_->Fill(input, slot, bucket, *stream_));
  draws_->Upload(slot, copies_);
  buffers_->Upload(input, bucket > 0 ? bucket : tokens, bucket > 0 ? bucket : logit_rows, copies_,
                   slot);
  copies_.Enqueue(ops_, *stream_);
  if (bucket > 0) {
    const bool shares = SharingPays(tokens);
    // A rank must not leave out a collective, but it asks, because that feeds the watchdog.
    const auto unwanted = step.Unwanted();
    stream_->LaunchUntil(GraphFor({bucket, shares}), [unwanted, alone = communicator_ == nullptr] {
      return unwanted() && alone;
    });
    ++graph_replays_;
    if (shares) ++sharing_replays_;
  } else {
    draws_->Feed(slot, buffers_->token_ids, *stream_);
    Enqueue({.tokens = step.tokens(),
             .logits = step.logits(),
             .shifted_queries = step.shifted_queries(),
             .embeddings = embeddings,
             .tables = tables,
             .shares = CanShare(tokens) && SharesAnything(),
             .compares = step.compared_rows() > 0,
             .step = &step});
    ++eager_steps_;
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> LlamaRunner::Collect(StepId id) {
  CHECK(last_ != collected_ && id.value() == collected_.value() + 1)
      << "step " << id << " is not the oldest uncollected one";
  const int slot = SlotOf(id);
  SubmittedStep& step = *steps_[slot];
  step.Wait();
  step.TellLayers();
  collected_ = id;
  RETURN_IF_ERROR(device_.Health());  // before any result of the step is read
  RETURN_IF_ERROR(kept_[slot]);
  if (step.abandoned()) return absl::CancelledError("the step was abandoned");
  return StepResult{.drawn = draws_->Drawn(slot, [&](int32_t row) { return LogitsIn(slot, row); }),
                    .changes = ChangesIn(slot)};
}

bool LlamaRunner::Done(StepId id) const { return steps_[SlotOf(id)]->Done(); }

void LlamaRunner::Poll() {
  if (last_ != collected_) steps_[SlotOf(StepId(collected_.value() + 1))]->TellLayers();
}

std::span<const float> LlamaRunner::Logits(StepId id, int32_t row) const {
  const std::span<const float> logits = LogitsIn(SlotOf(id), row);
  CHECK(id == collected_ && last_.value() - id.value() < max_in_flight() && !logits.empty())
      << "logits row " << row << " of step " << id << " is not kept";
  return logits;
}

std::span<const float> LlamaRunner::LogitsIn(int slot, int32_t row) const {
  if (device_.asynchronous()) return saved_logits_[slot].Row(row);
  return {buffers_->logits + int64_t{row} * config_.vocabulary,
          static_cast<size_t>(config_.vocabulary)};
}

absl::Status LlamaRunner::CopyBlocks(std::span<const BlockCopy> copies) {
  for (const std::vector<ByteRun>& runs : BlockCopyRuns(copies, layout_, pool_rank_)) {
    ops_.CopyRuns(*stream_, {.from = pool_, .to = pool_, .runs = runs});
  }
  if (last_ == collected_) stream_->Synchronize();
  return device_.Health();
}

}  // namespace baton
