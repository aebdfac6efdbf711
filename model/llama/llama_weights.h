// Weights of a Llama model in the device's own layout: one buffer, packed once at load.
//
// Matrices that read the same activations and have the same format are fused (Q, K and V; gate and
// up). So a layer consists of few, large products.
//
// A rank of a tensor-parallel group holds the rows of its outputs: of Q, K and V those of its
// heads, of the other matrices its share. The norms are whole. Rank 0 also holds the embedding
// table (docs/decisions/0023-tensor-parallelism.md).
//
// Thread safety: immutable after Load.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/gguf/gguf_reader.h"
#include "model/llama/llama_config.h"

namespace baton {

// A matrix that writes columns [column, column + matrix.rows) of an output row.
struct WeightPart {
  PackedMatrix matrix;
  int64_t column = 0;
};

// One or more matrices side by side. They write one output row.
struct FusedWeight {
  std::vector<WeightPart> parts;
  int64_t rows = 0;  // total of all parts; with tensor parallelism, of this rank

  bool WantsInt8() const;
  bool WantsF32() const;
};

struct LlamaLayerWeights {
  const float* attention_norm = nullptr;  // [hidden]
  FusedWeight qkv;                        // hidden → (query_heads + 2 kv_heads) * head_dim
  FusedWeight attention_output;           // query_heads * head_dim → hidden
  const float* ffn_norm = nullptr;        // [hidden]
  FusedWeight gate_up;                    // hidden → 2 * feed_forward
  FusedWeight down;                       // feed_forward → hidden
};

class LlamaWeights {
 public:
  using Progress = std::function<void(double fraction)>;
  // Writes a matrix in the device's layout to device memory at `to`. Its `data` is null.
  using MakeMatrix = std::function<absl::Status(const PackedMatrix& matrix, std::byte* to)>;

  // Errors name the tensor, its property and the required one. Refuses a tensor that the
  // architecture does not have, because ignoring it would change the model's output.
  // `config` is of the whole model. If `make` is set, it makes the matrices, and the file's data of
  // matrices is not read. REQUIRES: config.CheckTensorParallel(rank.degree) is OK.
  static absl::StatusOr<std::unique_ptr<LlamaWeights>> Load(
      const GgufFile& file, const LlamaConfig& config, Device& device, const Progress& progress,
      TensorRank rank = {}, const MakeMatrix& make = nullptr);

  const PackedMatrix& embedding() const { return embedding_; }  // without rows on ranks above 0
  const FusedWeight& output() const { return output_; }  // the embedding if the file ties them
  const float* output_norm() const { return output_norm_; }
  const std::vector<LlamaLayerWeights>& layers() const { return layers_; }
  size_t bytes() const { return buffer_->size(); }

 private:
  class Loader;

  std::unique_ptr<DeviceBuffer> buffer_;
  PackedMatrix embedding_;
  FusedWeight output_;
  const float* output_norm_ = nullptr;
  std::vector<LlamaLayerWeights> layers_;
};

}  // namespace baton
