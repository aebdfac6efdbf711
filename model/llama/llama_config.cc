#include "model/llama/llama_config.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/ops.h"
#include "kernels/rope_frequencies.h"
#include "kernels/softmax_weight.h"

namespace baton {
namespace {

// Reads a 32-bit count in [minimum, maximum].
absl::StatusOr<int32_t> ReadCount(const GgufFile& file, std::string_view key, int64_t minimum,
                                  int64_t maximum) {
  ASSIGN_OR_RETURN(const int64_t value, file.GetI64(key));
  if (value < minimum || value > maximum) {
    return absl::InvalidArgumentError(
        StrCat(key, " is ", value, "; must be ", minimum, " to ", maximum));
  }
  return static_cast<int32_t>(value);
}

absl::Status CheckExperts(const GgufFile& file) {
  ASSIGN_OR_RETURN(const uint32_t experts, file.GetU32Or("llama.expert_count", 0));
  if (experts != 0) {
    return absl::UnimplementedError(
        StrCat("llama.expert_count is ", experts, ": mixtures of experts are not supported"));
  }
  return absl::OkStatus();
}

constexpr std::string_view kWindowKey = "llama.attention.sliding_window";
constexpr std::string_view kPatternKey = "llama.attention.sliding_window_pattern";

// Returns which layers have the window. The key holds one value for each layer, or a period whose
// last layer has full attention (as llama.cpp reads it). Without the key all layers have the
// window.
absl::StatusOr<std::vector<bool>> ReadWindowLayers(const GgufFile& file, int32_t layers) {
  const GgufValue* pattern = file.Find(kPatternKey);
  if (pattern == nullptr) return std::vector<bool>(layers, true);
  if (pattern->type == GgufValueType::kArray) {
    ASSIGN_OR_RETURN(std::vector<bool> window_layers, file.GetBoolArray(kPatternKey));
    if (window_layers.size() == static_cast<size_t>(layers)) return window_layers;
    return absl::InvalidArgumentError(StrCat(kPatternKey, " has ", window_layers.size(),
                                             " values, the model has ", layers, " layers"));
  }
  ASSIGN_OR_RETURN(const int32_t period, ReadCount(file, kPatternKey, 1, INT32_MAX));
  std::vector<bool> window_layers(layers);
  for (int32_t i = 0; i < layers; ++i) window_layers[i] = i % period != period - 1;
  return window_layers;
}

// A window at least as long as the context is full attention.
absl::Status ReadWindow(const GgufFile& file, LlamaConfig& config) {
  ASSIGN_OR_RETURN(const int64_t window, file.GetI64Or(kWindowKey, 0));
  if (window < 0) {
    return absl::InvalidArgumentError(
        StrCat(kWindowKey, " is ", window, "; must be 0 (none) or more"));
  }
  if (window == 0 || window >= config.context_length) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<bool> layers, ReadWindowLayers(file, config.layers));
  const auto with_window = std::count(layers.begin(), layers.end(), true);
  if (with_window == 0) return absl::OkStatus();
  if (with_window == config.layers) {
    return absl::UnimplementedError(
        StrCat(kWindowKey, " is ", window, ", the context length is ", config.context_length,
               ": a window in all ", config.layers,
               " layers is not supported; at least one layer must have full attention"));
  }
  config.window = static_cast<int32_t>(window);
  config.window_layers = std::move(layers);
  return absl::OkStatus();
}

absl::Status ReadHeads(const GgufFile& file, LlamaConfig& config) {
  ASSIGN_OR_RETURN(config.query_heads, ReadCount(file, "llama.attention.head_count", 1, 1024));
  config.kv_heads = config.query_heads;
  if (file.HasKey("llama.attention.head_count_kv")) {
    ASSIGN_OR_RETURN(config.kv_heads,
                     ReadCount(file, "llama.attention.head_count_kv", 1, config.query_heads));
  }
  if (config.query_heads % config.kv_heads != 0) {
    return absl::InvalidArgumentError(StrCat("llama.attention.head_count_kv is ", config.kv_heads,
                                             ", must divide head_count ", config.query_heads));
  }
  if (file.HasKey("llama.attention.key_length")) {
    ASSIGN_OR_RETURN(config.head_dim,
                     ReadCount(file, "llama.attention.key_length", 2, kMaxHeadDim));
    ASSIGN_OR_RETURN(const int64_t value_length,
                     file.GetI64Or("llama.attention.value_length", config.head_dim));
    if (value_length != config.head_dim) {
      return absl::UnimplementedError(StrCat("llama.attention.value_length is ", value_length,
                                             ", key_length is ", config.head_dim,
                                             ": they must be equal"));
    }
    return absl::OkStatus();
  }
  if (config.hidden % config.query_heads != 0) {
    return absl::InvalidArgumentError(StrCat("llama.attention.head_count is ", config.query_heads,
                                             ", must divide embedding_length ", config.hidden));
  }
  config.head_dim = config.hidden / config.query_heads;
  if (config.head_dim > kMaxHeadDim) {
    return absl::UnimplementedError(
        StrCat("head dimension is ", config.head_dim, "; must be at most ", kMaxHeadDim));
  }
  return absl::OkStatus();
}

constexpr std::string_view kScalingKey = "llama.rope.scaling.type";
constexpr std::string_view kFactorKey = "llama.rope.scaling.factor";
constexpr std::string_view kOldFactorKey = "llama.rope.scale_linear";
constexpr double kMostAngle = 2147483648.0;  // up to here, sines are exact (exact_math.h)
constexpr std::string_view kSectionsKey = "llama.rope.dimension_sections";

// Refuses a YaRN parameter other than 1. llama.cpp ignores yarn_attn_factor, its converter writes
// Transformers' attention_factor there, and others multiply by it: only 1 has one meaning.
absl::Status CheckIsOne(const GgufFile& file, std::string_view key) {
  ASSIGN_OR_RETURN(const float value, file.GetF32Or(key, 1.0f));
  if (value == 1) return absl::OkStatus();
  return absl::UnimplementedError(StrCat(key, " is ", value, "; only 1 is supported"));
}

// Reads rope_freqs.weight. llama.cpp's converter writes Llama-3 scaling to it.
absl::StatusOr<std::vector<float>> ReadRopeDivisors(const GgufFile& file, int32_t pairs) {
  const GgufTensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>();
  if (tensor->type != GgmlType::kF32 || tensor->values != static_cast<uint64_t>(pairs)) {
    return absl::InvalidArgumentError(StrCat("rope_freqs.weight is ", GgmlTypeName(tensor->type),
                                             " ", tensor->ShapeString(), "; must be F32 [", pairs,
                                             "]"));
  }
  std::vector<float> divisors(tensor->values);
  std::memcpy(divisors.data(), tensor->data.data(), tensor->data.size());
  return divisors;
}

// Reads the fields of one scaling.
absl::Status ReadRopeScaling(const GgufFile& file, std::string_view scaling, int32_t context_length,
                             RopeFrequenciesSpec& spec) {
  const auto read = [&](std::string_view name, double& field) -> absl::Status {
    const std::string key = StrCat("llama.rope.scaling.", name);
    ASSIGN_OR_RETURN(field, file.GetF32Or(key, static_cast<float>(field)));
    return absl::OkStatus();
  };
  const auto read_original_context = [&](uint32_t absent) -> absl::Status {
    ASSIGN_OR_RETURN(const uint32_t tokens,
                     file.GetU32Or("llama.rope.scaling.original_context_length", absent));
    spec.original_context = tokens;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(read("attn_factor", spec.attention_factor));
  const bool has_factor = file.HasKey(kFactorKey) || file.HasKey(kOldFactorKey);
  // A factor without a type is that of linear scaling, as in llama.cpp.
  if (scaling == "linear" || (has_factor && !file.HasKey(kScalingKey))) {
    spec.scaling = RopeScaling::kLinear;
  } else if (scaling == "llama3") {
    spec.scaling = RopeScaling::kLlama3;
    RETURN_IF_ERROR(read("low_freq_factor", spec.low_freq_factor));
    RETURN_IF_ERROR(read("high_freq_factor", spec.high_freq_factor));
    RETURN_IF_ERROR(read_original_context(8192));
  } else if ((scaling == "ntk" || scaling == "yarn") && !has_factor) {
    return absl::InvalidArgumentError(
        StrCat(kScalingKey, " is \"", scaling, "\", but ", kFactorKey, " is missing"));
  } else if (scaling == "ntk") {  // our name: llama.cpp's converter writes another base instead
    spec.scaling = RopeScaling::kNtk;
  } else if (scaling == "yarn") {
    spec.scaling = RopeScaling::kYarn;
    RETURN_IF_ERROR(read("yarn_beta_fast", spec.beta_fast));
    RETURN_IF_ERROR(read("yarn_beta_slow", spec.beta_slow));
    RETURN_IF_ERROR(read("yarn_log_multiplier", spec.log_multiplier));
    RETURN_IF_ERROR(read_original_context(context_length));
    RETURN_IF_ERROR(CheckIsOne(file, "llama.rope.scaling.yarn_ext_factor"));
    RETURN_IF_ERROR(CheckIsOne(file, "llama.rope.scaling.yarn_attn_factor"));
  } else if (scaling == "dynamic") {
    return absl::UnimplementedError(
        "llama.rope.scaling.type is \"dynamic\": dynamic NTK is not supported, because its "
        "frequencies depend on the length of the sequence");
  } else if (scaling != "none") {
    return absl::UnimplementedError(StrCat("llama.rope.scaling.type is \"", PrintableName(scaling),
                                           "\", supported: none, linear, llama3, ntk, yarn"));
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufFile& file, LlamaConfig& config) {
  if (file.HasKey(kSectionsKey)) {
    return absl::UnimplementedError(StrCat(
        kSectionsKey, " is set: M-RoPE (positions with several components) is not supported"));
  }
  RopeFrequenciesSpec spec;
  spec.dim = config.head_dim;
  if (file.HasKey("llama.rope.dimension_count")) {
    ASSIGN_OR_RETURN(spec.dim, ReadCount(file, "llama.rope.dimension_count", 2, config.head_dim));
  }
  ASSIGN_OR_RETURN(const float base, file.GetF32Or("llama.rope.freq_base", 10000.0f));
  spec.base = base;
  ASSIGN_OR_RETURN(const std::string_view scaling, file.GetStringOr(kScalingKey, "none"));
  ASSIGN_OR_RETURN(float factor, file.GetF32Or(kFactorKey, 1.0f));
  if (!file.HasKey(kFactorKey)) {
    ASSIGN_OR_RETURN(factor, file.GetF32Or(kOldFactorKey, 1.0f));
  }
  spec.factor = factor;
  RETURN_IF_ERROR(ReadRopeScaling(file, scaling, config.context_length, spec));
  ASSIGN_OR_RETURN(const std::vector<float> divisors, ReadRopeDivisors(file, spec.dim / 2));
  spec.divisors = divisors;
  ASSIGN_OR_RETURN(config.rope_frequencies, RopeFrequencies(spec));
  const double angle = config.context_length * std::ranges::max(config.rope_frequencies);
  if (angle > kMostAngle) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "RoPE turns values by %g radians over a context of %d tokens; at most %g is "
        "allowed (freq_base is %g, scaling.factor %g%s)",
        angle, config.context_length, kMostAngle, spec.base, spec.factor,
        divisors.empty() ? "" : ", and rope_freqs.weight divides"));
  }
  config.rope_attention_factor = RopeAttentionFactor(spec);
  // Two models agree on RoPE exactly if the frequencies and the attention factor have the same
  // bits.
  uint64_t digest = 1469598103934665603u;  // FNV-1a
  const auto add = [&digest](double value) {
    digest = (digest ^ std::bit_cast<uint64_t>(value)) * 1099511628211u;
  };
  for (const double frequency : config.rope_frequencies) add(frequency);
  // Workers of earlier versions call the old key's scaling none.
  const bool linear = !file.HasKey(kScalingKey) && file.HasKey(kFactorKey);
  const std::string_view shown = linear ? "linear" : scaling;
  std::string attention;  // absent if it is 1, as in workers that know no other
  if (config.rope_attention_factor != 1) {
    add(config.rope_attention_factor);
    attention = absl::StrFormat(", attention factor %g", config.rope_attention_factor);
  }
  config.rope =
      absl::StrFormat("dim %d, base %g, scaling %s, factor %g%s, frequencies %016x", spec.dim,
                      spec.base, std::string(shown), spec.factor, attention, digest);
  return absl::OkStatus();
}

}  // namespace

DecoderConfig LlamaConfig::Decoder() const {
  return {.hidden = hidden,
          .query_heads = query_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .feed_forward = feed_forward,
          .vocabulary = vocabulary,
          .rope_frequencies = rope_frequencies};
}

KvCacheSpec LlamaConfig::Kv() const {
  const KvGroupSpec one{.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim};
  if (window == 0) return {.groups = {one}};
  KvGroupSpec full = one;
  KvGroupSpec windowed = one;
  windowed.kind = KvGroupKind::kSlidingWindow;
  windowed.window = window;
  for (int32_t layer = 0; layer < layers; ++layer) {
    (window_layers[layer] ? windowed : full).model_layers.push_back(layer);
  }
  full.layers = static_cast<int32_t>(full.model_layers.size());
  windowed.layers = static_cast<int32_t>(windowed.model_layers.size());
  return {.groups = {std::move(full), std::move(windowed)}};
}

absl::Status LlamaConfig::CheckTensorParallel(int32_t degree) const {
  if (degree < 1 || kv_heads % degree != 0) {
    return absl::InvalidArgumentError(StrCat(
        "tensor-parallel is ", degree, "; it must divide the model's ", kv_heads, " KV heads"));
  }
  const int32_t least = std::min({hidden, feed_forward, vocabulary});
  if (degree > least) {
    return absl::InvalidArgumentError(StrCat(
        "tensor-parallel is ", degree, "; the model's smallest matrix allows at most ", least));
  }
  return absl::OkStatus();
}

LlamaConfig LlamaConfig::OfRank(TensorRank rank) const {
  LlamaConfig own = *this;
  own.query_heads /= rank.degree;
  own.kv_heads /= rank.degree;
  own.feed_forward = static_cast<int32_t>(rank.Share(feed_forward));
  if (rank.rank > 0) own.vocabulary = static_cast<int32_t>(rank.Share(vocabulary));
  return own;
}

absl::StatusOr<LlamaConfig> ReadLlamaConfig(const GgufFile& file) {
  RETURN_IF_ERROR(CheckExperts(file));
  LlamaConfig config;
  ASSIGN_OR_RETURN(const std::string_view name, file.GetStringOr("general.name", ""));
  config.name = std::string(name);
  ASSIGN_OR_RETURN(config.layers, ReadCount(file, "llama.block_count", 1, 1024));
  ASSIGN_OR_RETURN(config.hidden, ReadCount(file, "llama.embedding_length", 1, 1 << 17));
  ASSIGN_OR_RETURN(config.feed_forward, ReadCount(file, "llama.feed_forward_length", 1, 1 << 20));
  ASSIGN_OR_RETURN(config.context_length, ReadCount(file, "llama.context_length", 2, 1 << 24));
  RETURN_IF_ERROR(ReadWindow(file, config));
  RETURN_IF_ERROR(ReadHeads(file, config));
  ASSIGN_OR_RETURN(config.norm_epsilon, file.GetF32("llama.attention.layer_norm_rms_epsilon"));
  if (!(config.norm_epsilon > 0) || config.norm_epsilon > 1) {
    return absl::InvalidArgumentError(StrCat("llama.attention.layer_norm_rms_epsilon is ",
                                             config.norm_epsilon, "; must be in (0, 1]"));
  }
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) return absl::NotFoundError("tensor token_embd.weight is missing");
  const uint64_t vocabulary = embedding->dimensions[1];
  if (vocabulary > kMaxSoftmaxVocabulary) {  // a larger one could never be sampled
    return absl::InvalidArgumentError(StrCat("token_embd.weight has ", vocabulary,
                                             " rows, must have at most ", kMaxSoftmaxVocabulary));
  }
  config.vocabulary = static_cast<int32_t>(vocabulary);
  RETURN_IF_ERROR(ReadRope(file, config));
  return config;
}

}  // namespace baton
