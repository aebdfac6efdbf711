// Literal transcription of NUMERICS_T1 §5 over the operands of an AttentionCase. Its rules can be
// changed, to show that a test would notice a kernel with another rule.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/half.h"
#include "kernels/tensor_core/fused_dot.h"
#include "tests/kernels/attention_case.h"

namespace baton {

struct TensorCoreRules {
  int64_t tile = 64;
  int64_t segment = 256;
  int64_t group = 8;
  float slack = 8;
  bool rounds_weights = true;  // else: cut off to 16 bits
  bool sums_rounded = true;    // else: l adds the weights before rounding
  bool groups_rising = true;   // else: groups merge from the last to the first
  DotModel dot = kHopperDot;
};

class TensorCoreCase {
 public:
  explicit TensorCoreCase(const AttentionCase& problem, const TensorCoreRules& rules = {})
      : problem_(problem), rules_(rules), shape_(problem.shape()) {}

  // [tokens, query_heads, head_dim]
  std::vector<float> Expected() const {
    std::vector<float> out;
    for (int64_t token = 0; token < problem_.tokens(); ++token) {
      for (int64_t head = 0; head < shape_.query_heads; ++head) {
        const std::vector<float> row = Row(token, head);
        out.insert(out.end(), row.begin(), row.end());
      }
    }
    return out;
  }

 private:
  struct State {
    float m = -std::numeric_limits<float>::infinity();
    float l = 0;
    std::vector<float> o;
    bool empty() const { return std::isinf(m); }
  };
  struct Segment {
    CaseRun run;
    int64_t begin;
  };

  bool is_scaled() const { return HasScales(shape_.type); }
  HalfType score_type() const {
    return shape_.type == KvType::kBF16 ? HalfType::kBF16 : HalfType::kF16;
  }
  HalfType value_type() const {
    return shape_.type == KvType::kF16 ? HalfType::kF16 : HalfType::kBF16;
  }
  static uint16_t Half(HalfType type, float x) {
    return type == HalfType::kBF16 ? F32ToBF16(x) : F32ToF16(x);
  }
  uint16_t Weight(float p) const {
    if (rules_.rounds_weights) return Half(value_type(), p);
    // Cutting off works on bf16 bits only, which is enough to see a difference.
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(p) >> 16);
  }
  static std::vector<uint16_t> Halves(HalfType type, const float* x, int64_t count) {
    std::vector<uint16_t> halves;
    for (int64_t i = 0; i < count; ++i) halves.push_back(Half(type, x[i]));
    return halves;
  }
  float Chain(HalfType type, const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
              float c) const {
    return PlainFusedDot(rules_.dot, type, a.data(), b.data(), static_cast<int64_t>(a.size()), c);
  }
  // The operand that stands for d of a stored row: the number itself, without its scale.
  uint16_t Stored(HalfType type, const AttentionCase::StoredRow& row, int64_t d) const {
    return Half(type, is_scaled() ? row.numbers[d] : row.values[d]);
  }

  float Score(int64_t token, int64_t head, const CaseRun& run, int64_t slot) const {
    const AttentionCase::StoredRow row = problem_.K(token, head, slot);
    std::vector<uint16_t> k;
    for (int64_t d = 0; d < shape_.head_dim; ++d) k.push_back(Stored(score_type(), row, d));
    const std::vector<uint16_t> q =
        Halves(score_type(), problem_.Q(token, head, run), shape_.head_dim);
    const float acc = Chain(score_type(), q, k, 0);
    return is_scaled() ? acc * (Factor() * row.scale) : acc;
  }
  static float Factor() { return AttentionCase::kScale * 1.44269504f; }

  static float Power(float z, float c, float m) {
    const float floor = (m - 100) * (1 / c);
    if (!(z > floor)) z = floor;
    const float t = std::fma(z, c, 12582912.0f - m);
    const float f = std::fma(z, c, -(t - (12582912.0f - m)));
    float p = std::fma(0.05517166852951050f, f, 0.2426111251115799f);
    p = std::fma(p, f, 0.6932609677314758f);
    p = std::fma(p, f, 0.9999280571937561f);
    return std::ldexp(p, static_cast<int>(t - 12582912.0f));
  }

  void AddTile(int64_t token, int64_t head, const CaseRun& run, int64_t begin, State& s) const {
    const int64_t first = std::max<int64_t>(begin, run.begin);
    const int64_t last = std::min<int64_t>(begin + rules_.tile, run.end);
    if (first >= last) return;
    std::vector<float> z;
    for (int64_t slot = first; slot < last; ++slot) z.push_back(Score(token, head, run, slot));
    const float c = is_scaled() ? 1 : Factor();
    const float bias = shape_.type == KvType::kF16 ? 7 : 0;
    const float tile = std::ceil(*std::max_element(z.begin(), z.end()) * c) - bias;
    if (s.empty() || tile > s.m + rules_.slack) {
      const float a = s.empty() ? 1 : std::ldexp(1.0f, static_cast<int>(s.m - tile));
      s.l *= a;
      for (float& o : s.o) o *= a;
      s.m = tile;
    }
    std::vector<uint16_t> weights(rules_.tile), scaled(rules_.tile);
    std::vector<std::vector<uint16_t>> v(shape_.head_dim, std::vector<uint16_t>(rules_.tile));
    for (int64_t slot = first; slot < last; ++slot) {
      const float p = Power(z[slot - first], c, s.m);
      const AttentionCase::StoredRow row = problem_.V(token, head, slot);
      weights[slot - begin] = Weight(p);
      scaled[slot - begin] = is_scaled() ? Weight(p * row.scale) : Weight(p);
      if (!rules_.sums_rounded) s.l += p;
      for (int64_t d = 0; d < shape_.head_dim; ++d) {
        v[d][slot - begin] = Stored(value_type(), row, d);
      }
    }
    const std::vector<uint16_t> ones(rules_.tile, Half(value_type(), 1));
    if (rules_.sums_rounded) s.l = Chain(value_type(), weights, ones, s.l);
    for (int64_t d = 0; d < shape_.head_dim; ++d) {
      s.o[d] = Chain(value_type(), scaled, v[d], s.o[d]);
    }
  }

  State Fresh() const { return {.o = std::vector<float>(shape_.head_dim, 0.0f)}; }

  static void Merge(State& s, const State& next) {
    if (next.empty()) return;
    if (s.empty()) {
      s = next;
      return;
    }
    const float m = std::max(s.m, next.m);
    const auto scaled = [m](float x, const State& of) {
      return std::ldexp(x, static_cast<int>(of.m - m));
    };
    s.l = scaled(s.l, s) + scaled(next.l, next);
    for (size_t d = 0; d < s.o.size(); ++d) s.o[d] = scaled(s.o[d], s) + scaled(next.o[d], next);
    s.m = m;
  }

  std::vector<float> Row(int64_t token, int64_t head) const {
    std::vector<Segment> segments;
    for (const CaseRun& run : problem_.RunsOf(token)) {
      if (run.begin >= run.end) continue;
      for (int64_t at = run.tile_origin; at < run.end; at += rules_.segment) {
        segments.push_back({run, at});
      }
    }
    std::vector<State> groups;
    for (size_t i = 0; i < segments.size(); ++i) {
      if (static_cast<int64_t>(i) % rules_.group == 0) groups.push_back(Fresh());
      State state = Fresh();
      for (int64_t at = 0; at < rules_.segment; at += rules_.tile) {
        AddTile(token, head, segments[i].run, segments[i].begin + at, state);
      }
      Merge(groups.back(), state);
    }
    if (!rules_.groups_rising) std::reverse(groups.begin(), groups.end());
    State all = Fresh();
    for (const State& group : groups) Merge(all, group);
    if (all.empty()) return std::vector<float>(shape_.head_dim, 0.0f);
    const float inverse = 1 / all.l;
    for (float& o : all.o) o *= inverse;
    return all.o;
  }

  const AttentionCase& problem_;
  const TensorCoreRules rules_;
  const AttentionShape shape_;
};

}  // namespace baton
