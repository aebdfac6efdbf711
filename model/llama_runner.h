// The Llama forward pass over ops.h: one function enqueues a step's ops, and decode steps replay it
// from captured graphs.
//
// Per layer: norm → QKV → rotate → KV write → paged attention → output (+ residual) → norm → gate
// and up → SiLU → down (+ residual); at the end norm and logits of the rows that are sampled. A
// step whose chunks are all one token with one logit row is a decode step: its rows are padded to a
// bucket and it replays the graph captured for that bucket (graph key: bucket, query length 1).
// Other steps are enqueued eagerly. Both give the same bits.
//
// Between two ops a step looks whether somebody still wants it: it stops when nobody does, and when
// it is enqueued eagerly, it goes on without the rows of last chunks that nobody wants.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/kv_cache_spec.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/inline_runner.h"
#include "model/llama_config.h"
#include "model/llama_weights.h"
#include "model/step_buffers.h"
#include "model/step_rows.h"

namespace baton {

struct LlamaRunnerOptions {
  StepLimits limits;
  bool paged = true;  // false: sequences are contiguous runs of blocks, no table is read
  bool graph = true;
  std::vector<int32_t> graph_buckets;  // rising batch sizes; empty: 1–8, then multiples of 4
};

class LlamaRunner final : public InlineRunner {
 public:
  // `pool` holds layout.num_blocks() blocks, the last of which is the scratch block. Everything
  // outlives the runner.
  static absl::StatusOr<std::unique_ptr<LlamaRunner>> Create(const LlamaConfig& config,
                                                             const LlamaWeights& weights,
                                                             const KvLayout& layout,
                                                             std::byte* pool, Device& device,
                                                             const LlamaRunnerOptions& options);

  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override;

  int64_t graph_replays() const { return graph_replays_; }
  int64_t eager_steps() const { return eager_steps_; }
  const BlockTableMirror& tables() const { return buffers_->tables(); }

 protected:
  absl::Status Run(const StepInput& input) override;
  std::span<const float> LogitsOf(int32_t row) const override;

 private:
  LlamaRunner(const LlamaConfig& config, const LlamaWeights& weights, const KvLayout& layout,
              std::byte* pool, Device& device, const LlamaRunnerOptions& options);

  using KvWritten = std::function<void(int32_t layers, int32_t chunks)>;

  // Every op asks anew how many rows there are left; of none it computes nothing.
  void Enqueue(StepRows tokens, StepRows logit_rows, const KvWritten& kv_written);
  void EnqueueLayer(int32_t index, StepRows& tokens, const KvWritten& kv_written);
  void EnqueueKvWrite(const KvLayerView& kv, StepRows& tokens);
  void EnqueueAttention(const KvLayerView& kv, StepRows& tokens);
  void EnqueueGate(const LlamaLayerWeights& layer, StepRows& tokens);
  void EnqueueLogits(StepRows& logit_rows);
  void Norm(const float* x, const float* weight, const FusedWeight& reader, Activations out,
            StepRows& rows);
  void Multiply(const Activations& x, const FusedWeight& weight, float* out, StepRows& rows,
                bool accumulate);
  KvLayerView LayerView(int32_t layer) const;
  int32_t Bucket(int32_t rows) const;  // 0: none fits
  const OpGraph& GraphFor(int32_t bucket);

  const LlamaConfig& config_;
  const LlamaWeights& weights_;
  const KvLayout layout_;
  std::byte* const pool_;
  const Ops& ops_;
  LlamaRunnerOptions options_;
  std::unique_ptr<StepBuffers> buffers_;
  std::unique_ptr<Stream> stream_;
  std::map<int32_t, std::unique_ptr<OpGraph>> graphs_;
  int64_t graph_replays_ = 0;
  int64_t eager_steps_ = 0;
};

}  // namespace baton
