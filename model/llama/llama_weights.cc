#include "model/llama/llama_weights.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "model/device_writer.h"

namespace baton {
namespace {

constexpr size_t kAlignment = 64;

std::optional<WeightFormat> FormatOf(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return WeightFormat::kF32;
    case GgmlType::kF16:
      return WeightFormat::kF16;
    case GgmlType::kBF16:
      return WeightFormat::kBF16;
    case GgmlType::kQ8_0:
      return WeightFormat::kQ8_0;
    case GgmlType::kQ4_0:
      return WeightFormat::kQ4_0;
    case GgmlType::kQ4_1:
      return WeightFormat::kQ4_1;
    case GgmlType::kQ5_0:
      return WeightFormat::kQ5_0;
    case GgmlType::kQ5_1:
      return WeightFormat::kQ5_1;
    case GgmlType::kQ4_K:
      return WeightFormat::kQ4_K;
    case GgmlType::kQ5_K:
      return WeightFormat::kQ5_K;
    case GgmlType::kQ6_K:
      return WeightFormat::kQ6_K;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool FusedWeight::WantsInt8() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const WeightPart& part) { return IsQuantized(part.matrix.format); });
}

bool FusedWeight::WantsF32() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const WeightPart& part) { return !IsQuantized(part.matrix.format); });
}

// Visits the same list of tensors twice. The first pass checks shapes and adds up bytes, the second
// packs.
class LlamaWeights::Loader {
 public:
  Loader(const GgufFile& file, const LlamaConfig& config, Device& device, TensorRank rank,
         const MakeMatrix& make)
      : file_(file), config_(config), device_(device), rank_(rank), make_(make), writer_(device) {}

  absl::StatusOr<std::unique_ptr<LlamaWeights>> Run(const Progress& progress) {
    LlamaWeights measured;
    RETURN_IF_ERROR(Visit(measured));
    RETURN_IF_ERROR(CheckNothingElse());
    auto weights = std::make_unique<LlamaWeights>();
    ASSIGN_OR_RETURN(weights->buffer_, device_.Allocate(next_, "model weights"));
    total_ = next_;
    next_ = 0;
    base_ = weights->buffer_->data();
    progress_ = &progress;
    RETURN_IF_ERROR(Visit(*weights));
    return weights;
  }

 private:
  absl::Status Visit(LlamaWeights& weights) {
    const int64_t hidden = config_.hidden;
    const int64_t heads = int64_t{config_.query_heads} * config_.head_dim;
    const int64_t kv = int64_t{config_.kv_heads} * config_.head_dim;
    const int64_t ffn = config_.feed_forward;
    FusedWeight embedding;
    if (rank_.rank == 0) {
      RETURN_IF_ERROR(Table("token_embd.weight", config_.vocabulary, hidden, embedding));
      weights.embedding_ = embedding.parts[0].matrix;
    } else {
      RETURN_IF_ERROR(Find("token_embd.weight", 2, hidden, config_.vocabulary).status());
    }
    RETURN_IF_ERROR(Vector("output_norm.weight", hidden, weights.output_norm_));
    if (file_.FindTensor("output.weight") != nullptr) {
      RETURN_IF_ERROR(Matrices({{"output.weight", config_.vocabulary}}, hidden, weights.output_));
    } else if (rank_.degree == 1) {
      weights.output_ = embedding;
    } else {
      RETURN_IF_ERROR(
          Matrices({{"token_embd.weight", config_.vocabulary}}, hidden, weights.output_));
    }
    for (int32_t i = 0; i < config_.layers; ++i) {
      const std::string prefix = StrCat("blk.", i, ".");
      LlamaLayerWeights& layer = weights.layers_.emplace_back();
      RETURN_IF_ERROR(Vector(prefix + "attn_norm.weight", hidden, layer.attention_norm));
      RETURN_IF_ERROR(Matrices({{prefix + "attn_q.weight", heads},
                                {prefix + "attn_k.weight", kv},
                                {prefix + "attn_v.weight", kv}},
                               hidden, layer.qkv));
      RETURN_IF_ERROR(
          Matrices({{prefix + "attn_output.weight", hidden}}, heads, layer.attention_output));
      RETURN_IF_ERROR(Vector(prefix + "ffn_norm.weight", hidden, layer.ffn_norm));
      RETURN_IF_ERROR(Matrices({{prefix + "ffn_gate.weight", ffn}, {prefix + "ffn_up.weight", ffn}},
                               hidden, layer.gate_up));
      RETURN_IF_ERROR(Matrices({{prefix + "ffn_down.weight", hidden}}, ffn, layer.down));
      if (progress_ != nullptr && *progress_) {
        (*progress_)(static_cast<double>(next_) / static_cast<double>(total_));
      }
    }
    return absl::OkStatus();
  }

  struct NamedRows {
    std::string name;
    int64_t rows;
  };

  absl::StatusOr<const GgufTensor*> Find(const std::string& name, uint32_t dimensions, int64_t cols,
                                         int64_t rows) {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      return absl::NotFoundError(StrCat("tensor ", name, " is missing"));
    }
    if (tensor->dimension_count != dimensions ||
        tensor->dimensions[0] != static_cast<uint64_t>(cols) ||
        tensor->dimensions[1] != static_cast<uint64_t>(rows)) {
      return absl::InvalidArgumentError(StrCat("tensor ", name, " has shape ",
                                               tensor->ShapeString(), "; must be [", cols,
                                               dimensions == 2 ? StrCat(", ", rows) : "", "]"));
    }
    known_.insert(tensor->name);
    return tensor;
  }

  std::byte* Take(size_t bytes) {
    std::byte* place = base_ == nullptr ? nullptr : base_ + next_;
    next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return place;
  }

  absl::Status Vector(const std::string& name, int64_t size, const float*& out) {
    ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, 1, size, 1));
    if (tensor->type != GgmlType::kF32) {
      return absl::UnimplementedError(StrCat("tensor ", name, " is of type ",
                                             GgmlTypeName(tensor->type),
                                             ", supported for vectors: F32"));
    }
    std::byte* place = Take(tensor->data.size());
    if (place != nullptr) {
      RETURN_IF_ERROR(writer_.Write(place, tensor->data.size(), [&](std::byte* memory) {
        std::memcpy(memory, tensor->data.data(), tensor->data.size());
      }));
    }
    out = reinterpret_cast<const float*>(place);
    return absl::OkStatus();
  }

  // Rows of a tensor.
  struct TensorRows {
    const GgufTensor* tensor;
    int64_t rows;
    std::span<const std::byte> data;
  };
  static TensorRows RowsOf(const GgufTensor& tensor, TensorRank rank) {
    const auto rows = static_cast<int64_t>(tensor.dimensions[1]);
    const size_t row_bytes = tensor.data.size() / std::max<uint64_t>(tensor.dimensions[1], 1);
    const auto first = static_cast<size_t>(rank.Begin(rows));
    const int64_t share = rank.Share(rows);
    return {&tensor, share,
            tensor.data.subspan(first * row_bytes, static_cast<size_t>(share) * row_bytes)};
  }

  // Packs all rows of one matrix, also those of other ranks.
  absl::Status Table(const std::string& name, int64_t rows, int64_t cols, FusedWeight& out) {
    ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, 2, cols, rows));
    return PackRun({RowsOf(*tensor, {})}, cols, out);
  }

  // Joins this rank's rows of adjacent matrices of the same format into one packed matrix.
  absl::Status Matrices(const std::vector<NamedRows>& names, int64_t cols, FusedWeight& out) {
    std::vector<TensorRows> run;
    for (size_t i = 0; i < names.size(); ++i) {
      ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(names[i].name, 2, cols, names[i].rows));
      if (!run.empty() && run.back().tensor->type != tensor->type) {
        RETURN_IF_ERROR(PackRun(run, cols, out));
        run.clear();
      }
      run.push_back(RowsOf(*tensor, rank_));
    }
    return PackRun(run, cols, out);
  }

  absl::Status PackRun(const std::vector<TensorRows>& run, int64_t cols, FusedWeight& out) {
    const GgufTensor& first = *run[0].tensor;
    const std::optional<WeightFormat> format = FormatOf(first.type);
    if (!format.has_value()) {
      return absl::UnimplementedError(StrCat("tensor ", first.name, " is of type ",
                                             GgmlTypeName(first.type),
                                             ", supported: ", kLoadableTypes));
    }
    int64_t rows = 0;
    for (const TensorRows& part : run) rows += part.rows;
    const size_t bytes = device_.ops().PackedBytes(*format, rows, cols);
    std::byte* place = Take(bytes);
    if (place != nullptr && make_) {
      RETURN_IF_ERROR(make_({*format, rows, cols}, place));
    } else if (place != nullptr) {
      const std::byte* source = run[0].data.data();
      std::vector<std::byte> joined;
      if (run.size() > 1) {
        for (const TensorRows& part : run) {
          joined.insert(joined.end(), part.data.begin(), part.data.end());
        }
        source = joined.data();
      }
      RETURN_IF_ERROR(writer_.Write(place, bytes, [&](std::byte* memory) {
        device_.ops().PackMatrix(*format, rows, cols, source, memory);
      }));
      for (const TensorRows& part : run) file_.Release(*part.tensor);
    }
    out.parts.push_back({PackedMatrix{*format, rows, cols, place}, out.rows});
    out.rows += rows;
    return absl::OkStatus();
  }

  absl::Status CheckNothingElse() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!known_.contains(tensor.name) && tensor.name != "rope_freqs.weight") {
        return absl::UnimplementedError(StrCat(
            "tensor ", PrintableName(tensor.name),
            " is not supported in the Llama architecture; ignoring it would change the model's "
            "output"));
      }
    }
    return absl::OkStatus();
  }

  const GgufFile& file_;
  const LlamaConfig& config_;
  Device& device_;
  const TensorRank rank_;
  const MakeMatrix& make_;  // empty: the matrices are the file's
  DeviceWriter writer_;
  absl::flat_hash_set<std::string_view> known_;
  std::byte* base_ = nullptr;
  size_t next_ = 0;
  size_t total_ = 0;
  const Progress* progress_ = nullptr;
};

absl::StatusOr<std::unique_ptr<LlamaWeights>> LlamaWeights::Load(
    const GgufFile& file, const LlamaConfig& config, Device& device, const Progress& progress,
    TensorRank rank, const MakeMatrix& make) {
  return Loader(file, config, device, rank, make).Run(progress);
}

}  // namespace baton
