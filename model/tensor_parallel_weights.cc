#include "model/tensor_parallel_weights.h"

#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "model/tensor_parallel_runner.h"

namespace baton {
namespace {

class TensorParallelWeights final : public ModelWeights {
 public:
  TensorParallelWeights(Device& lead, DeviceGroup others,
                        std::vector<std::unique_ptr<ModelWeights>> ranks)
      : others_(std::move(others)), ranks_(std::move(ranks)) {
    devices_.push_back(&lead);
    for (const auto& device : others_.devices) devices_.push_back(device.get());
  }

  size_t bytes() const override {
    size_t bytes = 0;
    for (const auto& rank : ranks_) bytes += rank->bytes();
    return bytes;
  }

  ModelCost cost() const override {
    ModelCost total;
    for (const auto& rank : ranks_) {
      const ModelCost cost = rank->cost();
      total.layers = total.layers + cost.layers;
      total.head = total.head + cost.head;
      total.attention_macs += cost.attention_macs;
    }
    return total;
  }

  // GPUs capture collectives when a runner is created, so all ranks create theirs at once.
  absl::StatusOr<std::unique_ptr<ModelRunner>> CreateRunner(
      const KvPoolLayout& layout, const PoolAddresses& pools,
      const ModelRunnerOptions& options) const override {
    std::unique_ptr<RankThreads> threads;
    if (!devices_.front()->host_accessible()) {
      threads = std::make_unique<RankThreads>(ranks_.size());
    }
    Communicator& communicator = *others_.communicators.front();
    std::vector<TensorParallelRunner::Rank> ranks(ranks_.size());
    std::vector<absl::Status> errors(ranks_.size());
    const auto create = [&](size_t rank) {
      auto runner = ranks_[rank]->CreateRunner(layout, pools.of(rank), options);
      errors[rank] = runner.status();
      if (!runner.ok()) return communicator.Abort(runner.status());  // the others may wait for it
      ranks[rank] = {.runner = *std::move(runner), .device = devices_[rank]};
    };
    if (threads != nullptr) {
      threads->Run(create);
    } else {
      for (size_t rank = 0; rank < ranks.size(); ++rank) create(rank);
    }
    for (const absl::Status& error : errors) RETURN_IF_ERROR(error);
    RETURN_IF_ERROR(communicator.Health());
    return std::make_unique<TensorParallelRunner>(std::move(ranks), communicator,
                                                  std::move(threads));
  }

 private:
  const DeviceGroup others_;  // all communicators, and the devices but rank 0's
  std::vector<const Device*> devices_;
  const std::vector<std::unique_ptr<ModelWeights>> ranks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelWeights>> LoadTensorParallel(const Architecture& architecture,
                                                                 const GgufFile& file, Device& lead,
                                                                 DeviceGroup others) {
  std::vector<std::unique_ptr<ModelWeights>> ranks;
  for (size_t rank = 0; rank < others.communicators.size(); ++rank) {
    Device& device = rank == 0 ? lead : *others.devices[rank - 1];
    ASSIGN_OR_RETURN(ranks.emplace_back(),
                     architecture.LoadRank(file, device, *others.communicators[rank]));
  }
  return std::make_unique<TensorParallelWeights>(lead, std::move(others), std::move(ranks));
}

}  // namespace baton
