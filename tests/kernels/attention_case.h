// Literal transcription of NUMERICS §8 for random inputs of paged attention, for tests to compare
// with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/plain_math.h"
#include "tests/kernels/attention_inputs.h"

namespace baton {

class AttentionCase : public AttentionInputs {
 public:
  using AttentionInputs::AttentionInputs;

  // Literal implementation of NUMERICS §8 for every (token, head).
  std::vector<float> Expected() const {
    std::vector<float> out;
    for (int64_t token = 0; token < tokens(); ++token) {
      for (int64_t head = 0; head < shape().query_heads; ++head) {
        const std::vector<float> row = ExpectedRow(token, head);
        out.insert(out.end(), row.begin(), row.end());
      }
    }
    return out;
  }

  // Softmax attention in binary64.
  std::vector<double> Exact() const {
    std::vector<double> out;
    for (int64_t token = 0; token < tokens(); ++token) {
      for (int64_t head = 0; head < shape().query_heads; ++head) {
        std::vector<double> row(shape().head_dim, 0.0);
        double sum = 0;
        for (const CaseRun& run : RunsOf(token)) {
          for (int64_t slot = run.begin; slot < run.end; ++slot) {
            double score = 0;
            for (int64_t d = 0; d < shape().head_dim; ++d) {
              score += double{Q(token, head, run)[d]} * K(token, head, slot).values[d];
            }
            const double p = std::exp(score * kScale);
            sum += p;
            for (int64_t d = 0; d < shape().head_dim; ++d) {
              row[d] += p * V(token, head, slot).values[d];
            }
          }
        }
        for (const double value : row) out.push_back(sum > 0 ? value / sum : 0.0);
      }
    }
    return out;
  }

 private:
  struct State {
    float m = -std::numeric_limits<float>::infinity();
    std::vector<float> l = std::vector<float>(16, 0.0f);
    std::vector<float> o;
    bool any = false;
  };

  // State of the slots of `run` in the segment that begins at `begin`.
  State ExpectedSegment(int64_t token, int64_t head, const CaseRun& run, int64_t begin) const {
    State state;
    state.o.assign(shape().head_dim, 0.0f);
    for (int64_t tile = begin; tile < begin + 256; tile += 64) {
      std::vector<int64_t> visible;
      for (int64_t slot = tile; slot < tile + 64; ++slot) {
        if (slot >= run.begin && slot < run.end) visible.push_back(slot);
      }
      if (visible.empty()) continue;
      std::vector<float> scores;
      float maximum = state.m;
      for (const int64_t slot : visible) {
        scores.push_back(ExpectedScore(token, head, run, slot));
        if (scores.back() > maximum) maximum = scores.back();
      }
      const float alpha = plain::Exp(state.m - maximum);
      for (float& o : state.o) o = o * alpha;
      for (float& l : state.l) l = l * alpha;
      std::vector<float> weights;
      for (size_t j = 0; j < visible.size(); ++j) {
        const float p = plain::Exp(scores[j] - maximum);
        weights.push_back(p);
        state.l[(visible[j] - tile) % 16] += p;
        if (shape().type == KvType::kInt8) continue;
        const StoredRow v = V(token, head, visible[j]);
        const bool scaled = v.numbers != nullptr;
        for (int64_t d = 0; d < shape().head_dim; ++d) {
          state.o[d] =
              std::fma(scaled ? p * v.scale : p, scaled ? v.numbers[d] : v.values[d], state.o[d]);
        }
      }
      if (shape().type == KvType::kInt8) ExpectedInt8Values(token, head, visible, weights, state.o);
      state.m = maximum;
      state.any = true;
    }
    return state;
  }

  float ExpectedScore(int64_t token, int64_t head, const CaseRun& run, int64_t slot) const {
    const float* query = Q(token, head, run);
    const StoredRow k = K(token, head, slot);
    if (k.numbers == nullptr) return plain::Dot16(query, k.values, shape().head_dim) * kScale;
    if (shape().type == KvType::kFp8) {
      return plain::Dot16(query, k.numbers, shape().head_dim) * (kScale * k.scale);
    }
    std::vector<int> q;
    const float scale_q = Quantize(query, shape().head_dim, 32767, q);
    int64_t sum = 0;
    for (int64_t d = 0; d < shape().head_dim; ++d) sum += q[d] * static_cast<int>(k.numbers[d]);
    return static_cast<float>(sum) * (scale_q * kScale * k.scale);
  }

  void ExpectedInt8Values(int64_t token, int64_t head, const std::vector<int64_t>& visible,
                          std::vector<float> weights, std::vector<float>& o) const {
    for (size_t j = 0; j < visible.size(); ++j) weights[j] *= V(token, head, visible[j]).scale;
    std::vector<int> u;
    const float scale = Quantize(weights.data(), static_cast<int64_t>(weights.size()), 32767, u);
    for (int64_t d = 0; d < shape().head_dim; ++d) {
      int64_t sum = 0;
      for (size_t j = 0; j < visible.size(); ++j) {
        sum += u[j] * static_cast<int>(V(token, head, visible[j]).numbers[d]);
      }
      o[d] = std::fma(scale, static_cast<float>(sum), o[d]);
    }
  }

  void Merge(State& state, const State& next) const {
    if (!next.any) return;
    if (!state.any) {
      state = next;
      return;
    }
    const float maximum = std::max(state.m, next.m);
    const float a = plain::Exp(state.m - maximum);
    const float b = plain::Exp(next.m - maximum);
    for (int i = 0; i < 16; ++i) state.l[i] = std::fma(next.l[i], b, state.l[i] * a);
    for (int64_t d = 0; d < shape().head_dim; ++d) {
      state.o[d] = std::fma(next.o[d], b, state.o[d] * a);
    }
    state.m = maximum;
  }

  std::vector<float> ExpectedRow(int64_t token, int64_t head) const {
    State state;
    for (const CaseRun& run : RunsOf(token)) {
      for (int64_t begin = run.tile_origin; begin < run.end; begin += 256) {
        Merge(state, ExpectedSegment(token, head, run, begin));
      }
    }
    std::vector<float> row(shape().head_dim, 0.0f);
    if (!state.any) return row;
    const float sum = plain::Tree16(state.l.data());
    for (int64_t d = 0; d < shape().head_dim; ++d) row[d] = state.o[d] / sum;
    return row;
  }
};

}  // namespace baton
