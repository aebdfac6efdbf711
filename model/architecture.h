// A model architecture: how a checkpoint becomes a ModelSpec, weights on a device, and runners.
//
// A new architecture is one implementation of Architecture and ModelWeights in a folder of its own
// under model/, and one line in model/architectures.cc. Nothing else names it.
//
// Thread safety: an Architecture is immutable. ModelWeights are immutable once loaded; several
// runners may read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/kv_pool_layout.h"
#include "kernels/device.h"
#include "model/gguf/gguf_reader.h"
#include "model/model_cost.h"
#include "model/model_runner.h"
#include "model/model_spec.h"
#include "model/step_buffers.h"

namespace baton {

struct ModelRunnerOptions {
  StepLimits limits;
  bool paged = true;  // false: sequences are contiguous runs of blocks, no table is read
  bool graph = true;
  std::vector<int32_t> graph_buckets = {};  // rising batch sizes; empty: 1–8, then multiples of 4
};

// The weights of one model on one device, and the maker of the runners that read them.
class ModelWeights {
 public:
  virtual ~ModelWeights() = default;

  virtual size_t bytes() const = 0;
  virtual ModelCost cost() const = 0;
  // `pool` has layout.pool_bytes() bytes. Each group's last block is its scratch block. The
  // weights, their device and the pool outlive the runner. ResourceExhausted: no memory for its
  // buffers.
  virtual absl::StatusOr<std::unique_ptr<ModelRunner>> CreateRunner(
      const KvPoolLayout& layout, std::byte* pool, const ModelRunnerOptions& options) const = 0;
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  // What general.architecture says in its files. Its own keys begin with this name and a dot.
  virtual std::string_view name() const = 0;
  // Fast: reads metadata alone. InvalidArgument, NotFound or Unimplemented name the key or tensor,
  // its value and the limit.
  virtual absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& file) const = 0;
  // Errors of ReadSpec, and those that name a tensor. `device` outlives the weights.
  virtual absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const GgufFile& file,
                                                             Device& device) const = 0;
};

}  // namespace baton
