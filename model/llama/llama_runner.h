// The Llama forward pass over ops.h: one function enqueues a step's ops, and decode steps replay it
// from captured graphs.
//
// Per layer: norm → QKV → rotate → KV write → paged attention → output (+ residual) → norm → gate
// and up → SiLU → down (+ residual); at the end norm and logits of the rows that are sampled. A
// step whose chunks are all one token with one logit row is a decode step: its rows are padded to a
// bucket and it replays the graph captured for that bucket (graph key: bucket, query length 1).
// Other steps, and those with shifted queries or input embeddings, are enqueued eagerly. Both give
// the same bits.
//
// Between two ops a step looks whether it is still wanted: it stops when no chunk is, and when it
// is enqueued eagerly, it goes on without the rows of last chunks that are not.
//
// An asynchronous device has two steps in flight. What they need at the same time is there twice
// (slots): the host's side of uploads and results, and the SubmittedStep. Buffers on the device are
// there once, because the stream runs one step after the other; so are the graphs, which name them.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/kv_pool_layout.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/architecture.h"
#include "model/draw_buffers.h"
#include "model/llama/llama_config.h"
#include "model/llama/llama_weights.h"
#include "model/model_runner.h"
#include "model/saved_logits.h"
#include "model/step_buffers.h"
#include "model/step_rows.h"
#include "model/submitted_step.h"

namespace baton {

class LlamaRunner final : public ModelRunner {
 public:
  // `pool` has layout.pool_bytes() bytes. Each group's last block is its scratch block. Everything
  // outlives the runner. REQUIRES: the groups are config.Kv()'s.
  static absl::StatusOr<std::unique_ptr<LlamaRunner>> Create(const LlamaConfig& config,
                                                             const LlamaWeights& weights,
                                                             const KvPoolLayout& layout,
                                                             std::byte* pool, Device& device,
                                                             const ModelRunnerOptions& options);

  int32_t max_in_flight() const override;
  absl::StatusOr<StepId> Submit(const StepInput& input) override;
  absl::StatusOr<StepResult> Collect(StepId id) override;
  bool Done(StepId id) const override;
  void Poll() override;
  void set_waker(std::function<void()> waker) override { waker_ = std::move(waker); }
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override;
  std::span<const float> Logits(StepId id, int32_t row) const override;

  RunnerCounters counters() const override {
    return {.graph_replays = graph_replays_,
            .eager_steps = eager_steps_,
            .table_entries = buffers_->uploaded_entries(),
            .table_uploads = buffers_->table_uploads()};
  }

 private:
  LlamaRunner(const LlamaConfig& config, const LlamaWeights& weights, const KvPoolLayout& layout,
              std::byte* pool, Device& device, const ModelRunnerOptions& options);

  static int SlotOf(StepId id) { return static_cast<int>(id.value() % kStepSlots); }
  absl::Status UploadAndEnqueue(const StepInput& input, StepId id, int slot);
  // Row `row` of the logits of the step in `slot`; empty: they are gone.
  std::span<const float> LogitsIn(int slot, int32_t row) const;

  // Every op asks anew, as it runs, how many rows there are left; of none it computes nothing.
  struct Rows {
    StepRows& tokens;
    StepRows& logits;
    StepRows& shifted_queries;
    bool embeddings = false;        // some tokens come as embeddings
    SubmittedStep* step = nullptr;  // null while capturing
  };
  void Enqueue(const Rows& rows);
  void EnqueueLayer(int32_t index, const Rows& rows);
  void EnqueueInputs(const Rows& rows);
  void EnqueueShiftedQueries(const Rows& rows);
  // What a layer's KV ops need of its KV group.
  struct LayerKv {
    KvLayerView view;
    const StepBuffers::Group& inputs;
  };
  LayerKv KvOf(int32_t layer) const;
  void EnqueueKvWrite(const LayerKv& kv, StepRows& tokens);
  void EnqueueAttention(const LayerKv& kv, StepRows& tokens);
  void EnqueueGate(const LlamaLayerWeights& layer, StepRows& tokens);
  void EnqueueLogits(StepRows& logit_rows);
  void Norm(const float* x, const float* weight, const FusedWeight& reader, Activations out,
            StepRows& rows);
  void Multiply(const Activations& x, const FusedWeight& weight, float* out, StepRows& rows,
                bool accumulate);
  int64_t QkvStride() const {
    return (int64_t{config_.query_heads} + 2 * config_.kv_heads) * config_.head_dim;
  }
  int32_t Bucket(int32_t rows) const;  // 0: none fits
  const OpGraph& GraphFor(int32_t bucket);

  const LlamaConfig& config_;
  const LlamaWeights& weights_;
  const KvPoolLayout layout_;
  std::byte* const pool_;
  Device& device_;
  const Ops& ops_;
  ModelRunnerOptions options_;
  std::unique_ptr<StepBuffers> buffers_;
  DrawBuffers draws_;
  std::array<std::unique_ptr<SubmittedStep>, kStepSlots> steps_;
  std::array<SavedLogits, kStepSlots> saved_logits_;
  std::array<absl::Status, kStepSlots> kept_;  // whether there was memory for them
  std::map<int32_t, std::unique_ptr<OpGraph>> graphs_;
  std::function<void()> waker_;
  StepId last_{0};  // submitted
  StepId collected_{0};
  std::unique_ptr<Stream> stream_;  // last: it ends before what its ops use
  int64_t graph_replays_ = 0;
  int64_t eager_steps_ = 0;
};

}  // namespace baton
