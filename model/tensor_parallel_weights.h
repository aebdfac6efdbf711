// Weights of a model that the ranks of a tensor-parallel group hold together.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device_group.h"
#include "model/architecture.h"
#include "model/gguf/gguf_reader.h"

namespace baton {

// Loads the share of every rank on its device. The result owns the group; rank 0's device is
// `lead`, which outlives it. Its runners run all ranks (tensor_parallel_runner.h). They share a
// pool that holds the KV of all heads, or on GPUs have one each. Errors: those of
// Architecture::LoadRank. REQUIRES: `others` has the devices of ranks 1, 2, … and the communicators
// of all ranks.
absl::StatusOr<std::unique_ptr<ModelWeights>> LoadTensorParallel(const Architecture& architecture,
                                                                 const GgufFile& file, Device& lead,
                                                                 DeviceGroup others);

}  // namespace baton
