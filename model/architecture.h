// Interface of a model architecture. It turns a checkpoint into a ModelSpec, weights on a device,
// and runners.
//
// To add an architecture, implement Architecture and ModelWeights in a folder of its own under
// model/ and add one line to model/architectures.cc. No other code names it.
//
// Thread safety: an Architecture is immutable. ModelWeights are immutable once loaded; several
// runners may read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/kv_pool_layout.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "model/gguf/gguf_reader.h"
#include "model/model_cost.h"
#include "model/model_runner.h"
#include "model/model_spec.h"
#include "model/step_buffers.h"

namespace baton {

struct ModelRunnerOptions {
  StepLimits limits;
  bool paged = true;  // false: a sequence is a contiguous run of blocks and no block table is read
  bool graph = true;
  std::vector<int32_t> graph_buckets = {};  // rising batch sizes; empty: 1–8, then multiples of 4
};

// Where a KV pool lies, for kernels only. The ranks of a tensor-parallel group share one pool with
// the heads of all ranks, or each has a pool with its heads (kv_heads.h) on its device.
class PoolAddresses {
 public:
  PoolAddresses(std::byte* only) : of_ranks_{only} {}  // NOLINT(google-explicit-constructor)
  // One address for each rank, or one for all. REQUIRES: not empty.
  explicit PoolAddresses(std::vector<std::byte*> of_ranks) : of_ranks_(std::move(of_ranks)) {}

  std::byte* of(size_t rank) const {
    return of_ranks_.size() == 1 ? of_ranks_[0] : of_ranks_[rank];
  }

 private:
  std::vector<std::byte*> of_ranks_;
};

// The weights of one model on one device. It creates the runners that read them.
class ModelWeights {
 public:
  virtual ~ModelWeights() = default;

  virtual size_t bytes() const = 0;
  virtual ModelCost cost() const = 0;
  // REQUIRES: each pool has layout.pool_bytes() bytes of address range, and memory before the first
  // Submit; the weights, their device and the pools outlive the runner. The last block of each
  // group is its scratch block. ResourceExhausted: no memory for the runner's buffers.
  // InvalidArgument: the device lacks a resource that a step of this model needs. Both name the
  // value and the limit.
  virtual absl::StatusOr<std::unique_ptr<ModelRunner>> CreateRunner(
      const KvPoolLayout& layout, const PoolAddresses& pools,
      const ModelRunnerOptions& options) const = 0;
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  // Value of general.architecture in its files. The architecture's own keys begin with this name
  // and a dot.
  virtual std::string_view name() const = 0;
  // Reads metadata only, so it is fast. InvalidArgument, NotFound and Unimplemented name the key or
  // tensor, its value and the limit.
  virtual absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& file) const = 0;
  // Errors: those of ReadSpec, and errors that name a tensor. REQUIRES: `device` outlives the
  // weights.
  virtual absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const GgufFile& file,
                                                             Device& device) const = 0;
  // Loads the share of one rank of a tensor-parallel group. Its runners compute that rank.
  // Errors: those of Load; InvalidArgument: the group's degree does not divide the model;
  // Unimplemented: the architecture has no tensor parallelism. REQUIRES: `device` and
  // `communicator` outlive the weights; `device` is asynchronous.
  virtual absl::StatusOr<std::unique_ptr<ModelWeights>> LoadRank(const GgufFile& file,
                                                                 Device& device,
                                                                 Communicator& communicator) const;
};

}  // namespace baton
