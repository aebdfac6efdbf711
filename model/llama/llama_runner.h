// The Llama forward pass over kernels/ops.h. One function enqueues the ops of a step. Decode steps
// replay captured graphs.
//
// Ops per layer: norm → QKV → rotate → KV write → paged attention → output (+ residual) → norm →
// gate and up → SiLU → down (+ residual). At the end: norm and logits of the sampled rows.
//
// A step is a decode step if every chunk is one token with one logit row. Its rows are padded to a
// bucket, and it replays the graph captured for that bucket (graph key: bucket, query length 1).
// The graph begins with the tokens that the step before has drawn, and ends with the draws of this
// step. So a decode step is an op that copies all inputs, the graph, and a copy of the drawn
// tokens. Buckets of at least kLeastSharingRows have a second graph on devices whose attention
// reads the KV that rows share once (Ops::SharesSegments). The step's input decides which one it
// replays. All other steps, and steps with shifted queries or input embeddings, are enqueued
// eagerly. Both ways give the same bits. In contiguous mode, so are steps with chunks that name
// their runs: their blocks are scattered, because they belong to several sequences.
//
// A runner takes all device memory at its creation: buffers, scratch memory of kernels for the
// largest steps, and the graphs. So the memory that is left may all become KV. Graphs depend on
// addresses and strides only, so they are captured once: neither a cleared cache nor a resized pool
// needs new ones.
//
// Between two ops a step checks whether it is still wanted. It stops when no chunk is wanted. If it
// was enqueued eagerly, it also drops the rows of trailing chunks that are not wanted.
//
// An asynchronous device has two steps in flight. Each of them has a slot with its own host side of
// uploads and results, and its own SubmittedStep. Buffers on the device exist once, because the
// stream runs one step after the other. The same holds for the graphs, which use these buffers.
//
// Rows that compare (StepChunk::compares) come last in a step. They leave it when K and V of layer
// 1 are compared; the other rows go on.
//
// A rank of a tensor-parallel group computes its heads and its columns of every product. It gathers
// the columns of the others after attention, after the gate, and after the two products that add to
// the residual (docs/decisions/0023-tensor-parallelism.md). model/tensor_parallel_runner.h joins
// the ranks.
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
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/architecture.h"
#include "model/draw_buffers.h"
#include "model/llama/llama_config.h"
#include "model/llama/llama_weights.h"
#include "model/model_runner.h"
#include "model/saved_logits.h"
#include "model/staged_array.h"
#include "model/step_buffers.h"
#include "model/step_rows.h"
#include "model/submitted_step.h"

namespace baton {

class LlamaRunner final : public ModelRunner {
 public:
  // Batches of fewer rows read their own KV each. A unit of attention then has mostly idle rows.
  static constexpr int32_t kLeastSharingRows = 8;

  // InvalidArgument: the device lacks a resource that a step of this model needs.
  // ResourceExhausted: not enough memory. REQUIRES: `pool` has layout.pool_bytes() bytes of address
  // range, with memory before the first Submit; the groups are those of config.Kv(); all arguments
  // outlive the runner. The last block of each group is its scratch block.
  //
  // A `communicator` makes this the runner of its rank. `config` is of the whole model, `weights`
  // of the rank. The pool is of the whole model, or the rank's own one (OfOneRank). The rank reads
  // and writes the KV of its heads only. REQUIRES: `device` is asynchronous; another runner for
  // each other rank gets the same steps.
  static absl::StatusOr<std::unique_ptr<LlamaRunner>> Create(const LlamaConfig& config,
                                                             const LlamaWeights& weights,
                                                             const KvPoolLayout& layout,
                                                             std::byte* pool, Device& device,
                                                             const ModelRunnerOptions& options,
                                                             Communicator* communicator = nullptr);

  int32_t max_in_flight() const override;
  absl::StatusOr<StepId> Submit(const StepInput& input) override;
  absl::StatusOr<StepResult> Collect(StepId id) override;
  bool Done(StepId id) const override;
  void Poll() override;
  void set_waker(std::function<void()> waker) override { waker_ = std::move(waker); }
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override;
  std::span<const float> Logits(StepId id, int32_t row) const override;
  absl::Status Health() const override { return device_.Health(); }
  bool compares_rows() const override { return options_.limits.max_compared_rows > 0; }
  bool shares_prefixes() const override { return options_.limits.shares_prefixes; }

  RunnerCounters counters() const override {
    return {.graph_replays = graph_replays_,
            .sharing_replays = sharing_replays_,
            .eager_steps = eager_steps_,
            .table_entries = buffers_->uploaded_entries(),
            .table_uploads = buffers_->table_uploads()};
  }

 private:
  LlamaRunner(const LlamaConfig& config, const LlamaWeights& weights, const KvPoolLayout& layout,
              std::byte* pool, Device& device, const ModelRunnerOptions& options,
              Communicator* communicator);

  static int SlotOf(StepId id) { return static_cast<int>(id.value() % kStepSlots); }
  absl::Status UploadAndEnqueue(const StepInput& input, StepId id, int slot);
  // Returns row `row` of the logits of the step in `slot`; empty if they are gone.
  std::span<const float> LogitsIn(int slot, int32_t row) const;

  // Row limits of a step. Every op asks when it runs how many rows are left. With 0 rows it
  // computes nothing.
  struct Rows {
    StepRows& tokens;
    StepRows& logits;
    StepRows& shifted_queries;
    bool embeddings = false;        // some tokens have input embeddings
    bool tables = false;            // reads block tables also if sequences are contiguous
    bool shares = false;            // attention reads what rows share once
    bool compares = false;          // the last rows compare; needs `step`
    SubmittedStep* step = nullptr;  // null while capturing
  };
  void Enqueue(const Rows& rows);
  void EnqueueLayer(int32_t index, const Rows& rows);
  void EnqueueKv(int32_t index, const Rows& rows);        // up to the KV write
  void EnqueueBehindKv(int32_t index, const Rows& rows);  // the rest of the layer
  void EnqueueInputs(const Rows& rows);
  // llama_runner_places.cc
  void EnqueueCompareKv(StepRows& tokens);
  void EnqueueShiftedQueries(const Rows& rows);
  bool CanCompare() const;
  // All layers of a step with rows that compare.
  void EnqueueComparison(const Rows& rows);
  // Enqueues a copy of the changes to the host. ResourceExhausted: no memory.
  absl::Status KeepChanges(int slot);
  std::vector<float> ChangesIn(int slot) const;
  int64_t ChangesOfARow() const;  // of all ranks
  // The parts of a KV group that a layer's KV ops need.
  struct LayerKv {
    KvLayerView view;
    const StepBuffers::Group& inputs;
  };
  LayerKv KvOf(int32_t layer) const;
  void EnqueueKvWrite(const LayerKv& kv, StepRows& tokens);
  void EnqueueAttention(const LayerKv& kv, const Rows& rows);
  void EnqueueGate(const LlamaLayerWeights& layer, StepRows& tokens);
  void RecordLayer(const Rows& rows);
  void EnqueueLogits(StepRows& logit_rows);
  void Norm(const float* x, const float* weight, const FusedWeight& reader, Activations out,
            StepRows& rows);
  // Writes the weight's columns to rows of `out` that are `out_stride` apart.
  void Multiply(const Activations& x, const FusedWeight& weight, float* out, int64_t out_stride,
                StepRows& rows, bool accumulate);
  // Adds a product to the residual, in the columns of all ranks.
  void AddToHidden(const Activations& x, const FusedWeight& weight, StepRows& rows);
  // These exchange rows with the other ranks. They do nothing if there is one rank.
  void BroadcastHidden(StepRows& rows);
  void GatherColumns(const float* own, int64_t own_stride, float* all, int64_t cols,
                     StepRows& rows);
  void GatherLogits(StepRows& logit_rows);
  // Makes the int8 form of the rows if `reader` needs it.
  void QuantizeFor(const FusedWeight& reader, const Activations& rows, int64_t cols,
                   StepRows& tokens);
  int64_t QkvStride() const {
    return (int64_t{config_.query_heads} + 2 * config_.kv_heads) * config_.head_dim;
  }
  // llama_runner_graphs.cc
  struct GraphKey {
    int32_t bucket;
    bool shares;  // Rows::shares
    auto operator<=>(const GraphKey&) const = default;
  };
  int32_t Bucket(int32_t rows) const;  // 0: no bucket is large enough
  // The members of the op's arguments that its shape consists of, in a KV group.
  PagedAttentionArgs AttentionShapeOf(int32_t group) const;
  // Attention can read what so many rows share once.
  bool CanShare(int32_t rows) const;
  // Some rows of the uploaded step share slots.
  bool SharesAnything() const;
  // Reading them once is faster for the uploaded decode step, which has `rows` rows.
  bool SharingPays(int32_t rows) const;
  std::vector<GraphKey> AllGraphs() const;
  const OpGraph& GraphFor(GraphKey key);
  std::unique_ptr<OpGraph> CaptureFor(GraphKey key);
  // Takes all memory that steps need, and captures the graphs of all buckets. For devices whose
  // memory the host cannot access: there a lack of memory during a step would end the device.
  absl::Status WarmUp();
  // Enqueues steps of all shapes, for Stream::Prepare.
  void EnqueueAllShapes();

  const LlamaConfig config_;  // sizes of this rank
  const LlamaWeights& weights_;
  const KvPoolLayout layout_;
  std::byte* const pool_;
  Device& device_;
  const Ops& ops_;
  ModelRunnerOptions options_;
  Communicator* const communicator_;  // null: there is one rank
  const TensorRank rank_;
  const TensorRank pool_rank_;   // whose heads of the pool this runner uses
  const DecoderConfig decoder_;  // sizes of the buffers
  const int64_t vocabulary_;     // of the model
  std::unique_ptr<StepBuffers> buffers_;
  std::unique_ptr<DrawBuffers> draws_;
  InputCopies copies_;  // of the step that is being submitted
  std::array<std::unique_ptr<SubmittedStep>, kStepSlots> steps_;
  std::array<SavedLogits, kStepSlots> saved_logits_;
  std::array<StagedArray<float>, kStepSlots> changes_;  // of rows that compare
  std::array<absl::Status, kStepSlots> kept_;           // error of keeping results for each slot
  std::map<GraphKey, std::unique_ptr<OpGraph>> graphs_;
  std::function<void()> waker_;
  StepId last_{0};  // last submitted step
  StepId collected_{0};
  std::unique_ptr<Stream> stream_;  // last member: it ends before the objects that its ops use
  int64_t graph_replays_ = 0;
  int64_t sharing_replays_ = 0;
  int64_t eager_steps_ = 0;
};

}  // namespace baton
