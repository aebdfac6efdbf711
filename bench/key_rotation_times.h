// Three ways to reuse cached keys at another position, timed on the shapes of a model:
//
//   query      Keys stay. Each step rotates a copy of its queries for each chunk. Baton does this.
//   copy       A request copies the chunks' blocks and rotates the keys of the copy, once.
//   unrotated  Keys are stored without rotation. Each step rotates all keys that it reads.
//
// The times of `copy` and `unrotated` leave out the conversion of stored f16 keys to f32, so they
// are lower limits.
//
// Thread safety: belongs to one thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/chunk_prompts.h"
#include "bench/figure_list.h"
#include "bench/goal_figures.h"
#include "cache/kv_cache_spec.h"
#include "common/status_macros.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/llama/llama_config.h"

namespace baton {

class KeyRotationTimes {
 public:
  // `device` must outlive this.
  static absl::StatusOr<std::unique_ptr<KeyRotationTimes>> Create(Device& device,
                                                                  const LlamaConfig& config,
                                                                  const ChunkShape& shape) {
    std::unique_ptr<KeyRotationTimes> times(new KeyRotationTimes(device, config, shape));
    RETURN_IF_ERROR(times->Allocate());
    return times;
  }

  void Measure(int runs, FigureList& figures) {
    const int64_t queries = shape_.question_tokens;
    Add("query_rotation_us_prefill", runs, figures, [&] { RotateQueries(queries); });
    Add("query_rotation_us_decode", runs, figures, [&] { RotateQueries(1); });
    Add("copied_keys_us_request", runs, figures, [&] { CopyKeys(); });
    Add("unrotated_keys_us_step", runs, figures, [&] { RotateKeys(); });
  }

 private:
  static constexpr int32_t kBlockSize = 16;

  KeyRotationTimes(Device& device, const LlamaConfig& config, const ChunkShape& shape)
      : device_(device),
        config_(config),
        shape_(shape),
        tokens_(shape.all_chunk_tokens()),
        shifts_(shape.chunks - 1),  // the first chunk stands where it was computed
        half_(static_cast<int64_t>(config.rope_frequencies.size())),
        stream_(device.CreateStream()) {}

  absl::Status Allocate() {
    const int64_t rows = std::max<int64_t>(tokens_, shifts_ * shape_.question_tokens);
    ASSIGN_OR_RETURN(tables_, device_.Allocate(2 * rows * half_ * sizeof(float), "rotations"));
    cosines_ = tables_->as<float>();
    sines_ = cosines_ + rows * half_;
    for (int64_t i = 0; i < rows * half_; ++i) {  // any rotation
      cosines_[i] = 0.8f;
      sines_[i] = 0.6f;
    }
    const int64_t query_rows = (1 + shifts_) * shape_.question_tokens;
    ASSIGN_OR_RETURN(queries_,
                     device_.Allocate(query_rows * QueryStride() * sizeof(float), "queries"));
    for (int64_t i = 0; i < query_rows * QueryStride(); ++i) queries_->as<float>()[i] = 0.5f;
    for (int64_t i = 0; i < shifts_ * shape_.question_tokens; ++i) {
      copied_rows_.push_back(static_cast<int32_t>(i % shape_.question_tokens));
    }
    const int64_t kv_values = int64_t{config_.layers} * tokens_ * KvRow();
    ASSIGN_OR_RETURN(keys_, device_.Allocate(2 * kv_values * sizeof(float), "keys and values"));
    for (int64_t i = 0; i < 2 * kv_values; ++i) keys_->as<float>()[i] = 0.25f;
    KvGroupSpec group = config_.Kv().groups.front();
    group.type = KvType::kF16;
    ASSIGN_OR_RETURN(const KvLayout layout, KvLayout::Create(group, KvLayoutKind::kBlockMajor,
                                                             kBlockSize, tokens_ / kBlockSize + 1));
    ASSIGN_OR_RETURN(pool_, device_.Allocate(layout.pool_bytes(), "KV pool"));
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      layers_.push_back({.base = pool_->data() + layout.PieceOffset(layer, 0, 0),
                         .type = group.type,
                         .block_size_log2 = layout.block_size_log2(),
                         .block_stride = layout.block_stride(),
                         .token_stride = layout.token_stride(),
                         .head_stride = layout.head_stride(),
                         .value_offset = layout.value_offset(),
                         .scale_offset = layout.scale_offset()});
    }
    for (int64_t slot = 0; slot < tokens_; ++slot) slots_.push_back(slot);
    return absl::OkStatus();
  }

  int64_t QueryStride() const {
    return (int64_t{config_.query_heads} + 2 * config_.kv_heads) * config_.head_dim;
  }
  int64_t KvRow() const { return int64_t{config_.kv_heads} * config_.head_dim; }
  float* KeysOf(int32_t layer) const { return keys_->as<float>() + 2 * layer * tokens_ * KvRow(); }

  void Rotate(float* x, int64_t stride, int64_t heads, int64_t rows) {
    device_.ops().Rope(*stream_, {.x = x,
                                  .stride = stride,
                                  .heads = heads,
                                  .head_dim = config_.head_dim,
                                  .cosines = cosines_,
                                  .sines = sines_,
                                  .half = half_,
                                  .neighbours = true,
                                  .tokens = rows});
  }

  // As LlamaRunner does in every layer.
  void RotateQueries(int64_t rows) {
    float* const copies = queries_->as<float>() + shape_.question_tokens * QueryStride();
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      device_.ops().GatherRows(*stream_, {.x = queries_->as<float>(),
                                          .indices = copied_rows_.data(),
                                          .out = copies,
                                          .rows = shifts_ * rows,
                                          .cols = int64_t{config_.query_heads} * config_.head_dim,
                                          .stride = QueryStride()});
      Rotate(copies, QueryStride(), config_.query_heads, shifts_ * rows);
    }
  }

  void RotateKeys() {
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      Rotate(KeysOf(layer), KvRow(), config_.kv_heads, tokens_);
    }
  }

  void CopyKeys() {
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      device_.ops().RopeKvWrite(*stream_, {.qk = KeysOf(layer),
                                           .v = KeysOf(layer) + tokens_ * KvRow(),
                                           .stride = KvRow(),
                                           .kv_heads = config_.kv_heads,
                                           .head_dim = config_.head_dim,
                                           .cosines = cosines_,
                                           .sines = sines_,
                                           .half = half_,
                                           .neighbours = true,
                                           .slot_mapping = slots_.data(),
                                           .kv = layers_[static_cast<size_t>(layer)],
                                           .tokens = tokens_});
    }
  }

  template <typename Function>
  void Add(const std::string& name, int runs, FigureList& figures, const Function& run) {
    run();
    std::vector<double> us;
    for (int i = 0; i < runs; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run();
      us.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
              .count());
    }
    AddMedian(figures, name, us, "us");
  }

  Device& device_;
  const LlamaConfig& config_;
  const ChunkShape shape_;
  const int64_t tokens_;
  const int64_t shifts_;
  const int64_t half_;
  const std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceBuffer> tables_;
  float* cosines_ = nullptr;
  float* sines_ = nullptr;
  std::unique_ptr<DeviceBuffer> queries_;
  std::vector<int32_t> copied_rows_;
  std::unique_ptr<DeviceBuffer> keys_;  // [layers, K or V, tokens, KvRow()]
  std::unique_ptr<DeviceBuffer> pool_;
  std::vector<KvLayerView> layers_;
  std::vector<int64_t> slots_;
};

}  // namespace baton
