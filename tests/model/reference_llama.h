// Textbook implementation of the Llama forward pass: binary64, dequantised weights, no cache, no
// batch. Tests compare LlamaRunner with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/strong_int.h"
#include "model/gguf/gguf_dequant.h"
#include "model/gguf/gguf_reader.h"
#include "model/llama/llama_config.h"

namespace baton {

class ReferenceLlama {
 public:
  ReferenceLlama(const GgufFile& file, const LlamaConfig& config) : file_(file), config_(config) {
    const std::string_view scaling = *file.GetStringOr("llama.rope.scaling.type", "none");
    const double dim = config.head_dim;
    const double factor = *file.GetF32Or("llama.rope.scaling.factor", 1.0f);
    double base = *file.GetF32Or("llama.rope.freq_base", 10000.0f);
    if (scaling == "ntk") base *= std::pow(factor, dim / (dim - 2));
    std::vector<double> divisors(config.head_dim / 2, 1.0);
    if (file.FindTensor("rope_freqs.weight") != nullptr) divisors = Read("rope_freqs.weight");
    for (int32_t i = 0; i < config.head_dim / 2; ++i) {
      double stretched = scaling == "linear" ? 1 : 0;  // part of the frequency that is divided
      if (scaling == "yarn") {
        const double original = *file.GetU32Or("llama.rope.scaling.original_context_length",
                                               static_cast<uint32_t>(config.context_length));
        const auto pair_of = [&](double turns) {
          return dim * std::log(original / (turns * 2 * M_PI)) / (2 * std::log(base));
        };
        const double first = std::max(0.0, std::floor(pair_of(32)));
        const double last = std::ceil(pair_of(1));
        stretched = std::clamp((i - first) / (last - first), 0.0, 1.0);
      }
      const double plain = std::pow(base, -2.0 * i / dim) / divisors[i];
      frequencies_.push_back(plain * (stretched / factor + 1 - stretched));
    }
    if (scaling == "yarn") magnitude_ = 0.1 * std::log(factor) + 1;
  }

  // Returns the logits of the last token.
  std::vector<double> Logits(std::span<const TokenId> tokens) const {
    const Matrix embedding = Read("token_embd.weight");
    std::vector<Matrix> x;
    for (const TokenId token : tokens) {
      const auto row = embedding.begin() + int64_t{token} * config_.hidden;
      x.emplace_back(row, row + config_.hidden);
    }
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      const std::string prefix = "blk." + std::to_string(layer) + ".";
      const bool has_window = config_.window > 0 && config_.window_layers[layer];
      Attend(prefix, x, has_window ? config_.window : tokens.size());
      FeedForward(prefix, x);
    }
    const Matrix last = Normalize(x.back(), Read("output_norm.weight"));
    const bool tied = file_.FindTensor("output.weight") == nullptr;
    return Multiply(Read(tied ? "token_embd.weight" : "output.weight"), last);
  }

 private:
  using Matrix = std::vector<double>;

  Matrix Read(const std::string& name) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<float> values(tensor->values);
    if (tensor->type == GgmlType::kF32) {
      std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    } else {
      EXPECT_TRUE(Dequantize(tensor->type, tensor->data, values).ok()) << name;
    }
    return {values.begin(), values.end()};
  }

  static Matrix Multiply(const Matrix& weight, const Matrix& x) {
    Matrix y(weight.size() / x.size());
    for (size_t row = 0; row < y.size(); ++row) {
      for (size_t k = 0; k < x.size(); ++k) y[row] += weight[row * x.size() + k] * x[k];
    }
    return y;
  }
  static void Add(Matrix& x, const Matrix& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  Matrix Normalize(const Matrix& x, const Matrix& weight) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / x.size() + config_.norm_epsilon);
    Matrix y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
    return y;
  }
  void Rotate(Matrix& heads, size_t position) const {
    const int32_t dim = config_.head_dim;
    for (size_t begin = 0; begin < heads.size(); begin += dim) {
      for (int32_t i = 0; i < dim / 2; ++i) {
        const double angle = position * frequencies_[i];
        double& a = heads[begin + 2 * i];
        double& b = heads[begin + 2 * i + 1];
        const double cosine = magnitude_ * std::cos(angle);
        const double sine = magnitude_ * std::sin(angle);
        const double turned = a * cosine - b * sine;
        b = a * sine + b * cosine;
        a = turned;
      }
    }
  }

  // Attention in which each token sees the last `window` tokens up to itself.
  void Attend(const std::string& prefix, std::vector<Matrix>& x, size_t window) const {
    const Matrix norm = Read(prefix + "attn_norm.weight");
    const Matrix wq = Read(prefix + "attn_q.weight");
    const Matrix wk = Read(prefix + "attn_k.weight");
    const Matrix wv = Read(prefix + "attn_v.weight");
    const Matrix wo = Read(prefix + "attn_output.weight");
    std::vector<Matrix> keys;
    std::vector<Matrix> values;
    for (size_t t = 0; t < x.size(); ++t) {
      const Matrix normalized = Normalize(x[t], norm);
      Matrix query = Multiply(wq, normalized);
      keys.push_back(Multiply(wk, normalized));
      values.push_back(Multiply(wv, normalized));
      Rotate(query, t);
      Rotate(keys.back(), t);
      if (keys.size() > window) {
        keys.erase(keys.begin());
        values.erase(values.begin());
      }
      Matrix attended;
      for (int32_t head = 0; head < config_.query_heads; ++head) {
        const Matrix one = AttendHead(query, head, keys, values);
        attended.insert(attended.end(), one.begin(), one.end());
      }
      Add(x[t], Multiply(wo, attended));
    }
  }

  Matrix AttendHead(const Matrix& query, int32_t head, const std::vector<Matrix>& keys,
                    const std::vector<Matrix>& values) const {
    const int32_t dim = config_.head_dim;
    const int32_t kv_begin = head / (config_.query_heads / config_.kv_heads) * dim;
    Matrix weights;
    double total = 0;
    for (const Matrix& key : keys) {
      double score = 0;
      for (int32_t d = 0; d < dim; ++d) score += query[head * dim + d] * key[kv_begin + d];
      weights.push_back(std::exp(score / std::sqrt(dim)));
      total += weights.back();
    }
    Matrix out(dim);
    for (size_t s = 0; s < keys.size(); ++s) {
      for (int32_t d = 0; d < dim; ++d) out[d] += weights[s] / total * values[s][kv_begin + d];
    }
    return out;
  }

  void FeedForward(const std::string& prefix, std::vector<Matrix>& x) const {
    const Matrix norm = Read(prefix + "ffn_norm.weight");
    const Matrix gate = Read(prefix + "ffn_gate.weight");
    const Matrix up = Read(prefix + "ffn_up.weight");
    const Matrix down = Read(prefix + "ffn_down.weight");
    for (Matrix& row : x) {
      const Matrix normalized = Normalize(row, norm);
      Matrix gated = Multiply(gate, normalized);
      const Matrix upped = Multiply(up, normalized);
      for (size_t i = 0; i < gated.size(); ++i) {
        gated[i] = gated[i] / (1 + std::exp(-gated[i])) * upped[i];
      }
      Add(row, Multiply(down, gated));
    }
  }

  const GgufFile& file_;
  const LlamaConfig& config_;
  std::vector<double> frequencies_;
  double magnitude_ = 1;
};

}  // namespace baton
