// The Llama implementation of model/architecture.h.
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "model/architecture.h"
#include "model/llama/llama_config.h"
#include "model/llama/llama_runner.h"
#include "model/llama/llama_weights.h"

namespace baton {
namespace {

MatrixMacs MacsOf(const FusedWeight& weight) {
  MatrixMacs macs;
  for (const WeightPart& part : weight.parts) {
    const PackedMatrix& m = part.matrix;
    (IsQuantized(m.format) ? macs.int8 : macs.f32) +=
        static_cast<double>(m.rows) * static_cast<double>(m.cols);
  }
  return macs;
}

class LlamaModelWeights final : public ModelWeights {
 public:
  // `communicator`: of the rank that has the weights; null if they are of the whole model.
  LlamaModelWeights(LlamaConfig config, std::unique_ptr<LlamaWeights> weights, Device& device,
                    Communicator* communicator)
      : config_(std::move(config)),
        weights_(std::move(weights)),
        device_(device),
        communicator_(communicator) {}

  size_t bytes() const override { return weights_->bytes(); }

  ModelCost cost() const override {
    ModelCost cost;
    for (const LlamaLayerWeights& layer : weights_->layers()) {
      cost.layers = cost.layers + MacsOf(layer.qkv) + MacsOf(layer.attention_output) +
                    MacsOf(layer.gate_up) + MacsOf(layer.down);
    }
    cost.head = MacsOf(weights_->output());
    const int32_t ranks = communicator_ == nullptr ? 1 : communicator_->rank().degree;
    cost.attention_macs = 2.0 * config_.query_heads / ranks * config_.head_dim * config_.layers;
    return cost;
  }

  absl::StatusOr<std::unique_ptr<ModelRunner>> CreateRunner(
      const KvPoolLayout& layout, const PoolAddresses& pools,
      const ModelRunnerOptions& options) const override {
    return LlamaRunner::Create(config_, *weights_, layout, pools.of(0), device_, options,
                               communicator_);
  }

 private:
  const LlamaConfig config_;
  const std::unique_ptr<LlamaWeights> weights_;
  Device& device_;
  Communicator* const communicator_;
};

class Llama final : public Architecture {
 public:
  std::string_view name() const override { return "llama"; }

  absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& file) const override {
    ASSIGN_OR_RETURN(const LlamaConfig config, ReadLlamaConfig(file));
    return ModelSpec{
        .architecture = std::string(name()),
        .name = config.name,
        .vocabulary = config.vocabulary,
        .context_length = config.context_length,
        .layers = config.layers,
        .hidden = config.hidden,
        .kv = config.Kv(),
        .rope = config.rope,
        .dimensions = absl::StrFormat("hidden %d, %d query and %d KV heads of %d, feed-forward %d",
                                      config.hidden, config.query_heads, config.kv_heads,
                                      config.head_dim, config.feed_forward)};
  }

  absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const GgufFile& file,
                                                     Device& device) const override {
    ASSIGN_OR_RETURN(LlamaConfig config, ReadLlamaConfig(file));
    ASSIGN_OR_RETURN(auto weights, LlamaWeights::Load(file, config, device, nullptr));
    return std::make_unique<LlamaModelWeights>(std::move(config), std::move(weights), device,
                                               /*communicator=*/nullptr);
  }

  absl::StatusOr<std::unique_ptr<ModelWeights>> LoadRank(
      const GgufFile& file, Device& device, Communicator& communicator) const override {
    ASSIGN_OR_RETURN(LlamaConfig config, ReadLlamaConfig(file));
    const TensorRank rank = communicator.rank();
    RETURN_IF_ERROR(config.CheckTensorParallel(rank.degree));
    ASSIGN_OR_RETURN(auto weights, LlamaWeights::Load(file, config, device, nullptr, rank));
    return std::make_unique<LlamaModelWeights>(std::move(config), std::move(weights), device,
                                               &communicator);
  }
};

}  // namespace

const Architecture& LlamaArchitecture() {
  static const Llama architecture;
  return architecture;
}

}  // namespace baton
