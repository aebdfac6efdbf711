// A paged-attention problem with its memory: random Q, K and V, a pool in a chosen layout with
// blocks in a shuffled order, and a literal transcription of NUMERICS §8 to compare with.
//
// K and V are kept per sequence as well as in the pool, so that the transcription knows no blocks;
// of int8 pools, the integers and scales too. Every slot that no token sees is NaN in the pool.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/plain_math.h"
#include "kernels/half.h"
#include "kernels/ops.h"
#include "tests/kernels/random_inputs.h"

namespace baton {

struct AttentionShape {
  int64_t query_heads = 6;
  int64_t kv_heads = 2;
  int64_t head_dim = 16;
  KvType type = KvType::kF16;
  int block_size_log2 = 4;
  bool layer_major = false;  // each layer its own region; else all layers of a block together
  bool contiguous = false;   // no tables
};

// Tokens of one sequence and what each may see.
struct AttentionSequence {
  int64_t slots = 0;
  std::vector<std::vector<VisibleRange>> tokens;
};

// The last `count` tokens of a sequence of `slots`, each seeing itself and `window` slots before.
inline AttentionSequence CausalSequence(int32_t slots, int32_t count, int32_t window = 1 << 30) {
  AttentionSequence sequence{.slots = slots, .tokens = {}};
  for (int32_t slot = slots - count; slot < slots; ++slot) {
    sequence.tokens.push_back({{std::max(0, slot - window), slot + 1}});
  }
  return sequence;
}

class AttentionCase {
 public:
  AttentionCase(const AttentionShape& shape, const std::vector<AttentionSequence>& sequences,
                uint64_t seed)
      : shape_(shape), sequences_(sequences) {
    std::mt19937_64 random(seed);
    for (const AttentionSequence& sequence : sequences) {
      const int64_t values = sequence.slots * shape.kv_heads * shape.head_dim;
      k_.push_back(RandomFloats(random, values));
      v_.push_back(RandomFloats(random, values));
      Store(k_.back(), k_integers_.emplace_back());
      Store(v_.back(), v_integers_.emplace_back());
    }
    PlaceTokens(random);
    PlaceBlocks(random);
  }

  // Valid as long as the case; `out` is [tokens, query_heads, head_dim].
  PagedAttentionArgs Args(float* out) const {
    PagedAttentionArgs args{.q = q_.data(),
                            .q_stride = q_stride(),
                            .out = out,
                            .query_heads = shape_.query_heads,
                            .kv_heads = shape_.kv_heads,
                            .head_dim = shape_.head_dim,
                            .softmax_scale = kScale,
                            .kv = view_,
                            .sequence_of_token = sequence_of_token_.data(),
                            .visible = visible_.data()};
    args.tokens = tokens();
    if (shape_.contiguous) {
      args.first_block = first_block_.data();
    } else {
      args.block_tables = block_tables_.data();
      args.table_stride = table_stride_;
    }
    return args;
  }
  int64_t tokens() const { return static_cast<int64_t>(sequence_of_token_.size()); }
  size_t out_size() const { return tokens() * shape_.query_heads * shape_.head_dim; }

  // NUMERICS §8, word by word, for every (token, head).
  std::vector<float> Expected() const {
    std::vector<float> out;
    for (int64_t token = 0; token < tokens(); ++token) {
      for (int64_t head = 0; head < shape_.query_heads; ++head) {
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
      for (int64_t head = 0; head < shape_.query_heads; ++head) {
        std::vector<double> row(shape_.head_dim, 0.0);
        double sum = 0;
        for (int64_t slot = 0; slot < SlotsOf(token); ++slot) {
          if (!Sees(token, slot)) continue;
          double score = 0;
          for (int64_t d = 0; d < shape_.head_dim; ++d) {
            score += double{Q(token, head)[d]} * Row(k_, token, head, slot)[d];
          }
          const double p = std::exp(score * kScale);
          sum += p;
          for (int64_t d = 0; d < shape_.head_dim; ++d) {
            row[d] += p * Row(v_, token, head, slot)[d];
          }
        }
        for (const double value : row) out.push_back(sum > 0 ? value / sum : 0.0);
      }
    }
    return out;
  }

 private:
  static constexpr float kScale = 0.25f;
  struct State {
    float m = -std::numeric_limits<float>::infinity();
    std::vector<float> l = std::vector<float>(16, 0.0f);
    std::vector<float> o;
    bool any = false;
  };

  // Rows of head_dim integers in order, and a scale for each.
  struct Integers {
    std::vector<int> values;
    std::vector<float> scales;
  };

  // Rounds values to what the pool will hold.
  void Store(std::vector<float>& values, Integers& integers) const {
    if (shape_.type == KvType::kInt8) {
      for (size_t row = 0; row < values.size(); row += shape_.head_dim) {
        float* x = values.data() + row;
        integers.scales.push_back(Quantize(x, shape_.head_dim, 127, integers.values));
        for (int64_t d = 0; d < shape_.head_dim; ++d) {
          x[d] = static_cast<float>(integers.values[row + d]) * integers.scales.back();
        }
      }
      return;
    }
    for (float& value : values) {
      if (shape_.type == KvType::kF16) value = F16ToF32(F32ToF16(value));
      if (shape_.type == KvType::kBF16) value = BF16ToF32(F32ToBF16(value));
    }
  }
  // Appends integers of magnitude `most`; returns their scale. Rounds by the current rounding mode,
  // to nearest even.
  static float Quantize(const float* x, int64_t count, float most, std::vector<int>& out) {
    float amax = 0;
    for (int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float inverse = amax > 0 ? most / amax : 0;
    for (int64_t i = 0; i < count; ++i) {
      out.push_back(static_cast<int>(std::nearbyint(x[i] * inverse)));
    }
    return amax / most;
  }
  int64_t q_stride() const { return shape_.query_heads * shape_.head_dim + 7; }
  const float* Q(int64_t token, int64_t head) const {
    return q_.data() + token * q_stride() + head * shape_.head_dim;
  }
  int64_t SlotsOf(int64_t token) const { return sequences_[sequence_of_token_[token]].slots; }
  const float* Row(const std::vector<std::vector<float>>& rows, int64_t token, int64_t head,
                   int64_t slot) const {
    return rows[sequence_of_token_[token]].data() + RowIndex(head, slot) * shape_.head_dim;
  }
  int64_t RowIndex(int64_t head, int64_t slot) const {
    return slot * shape_.kv_heads + head / (shape_.query_heads / shape_.kv_heads);
  }
  bool Sees(int64_t token, int64_t slot) const {
    for (int i = 0; i < kMaxVisibleRanges; ++i) {
      const VisibleRange range = visible_[token * kMaxVisibleRanges + i];
      if (slot >= range.begin && slot < range.end) return true;
    }
    return false;
  }

  void PlaceTokens(std::mt19937_64& random) {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (const std::vector<VisibleRange>& ranges : sequences_[s].tokens) {
        sequence_of_token_.push_back(static_cast<int32_t>(s));
        for (int i = 0; i < kMaxVisibleRanges; ++i) {
          visible_.push_back(i < ranges.size() ? ranges[i] : VisibleRange{});
        }
      }
    }
    q_ = RandomFloats(random, tokens() * q_stride());
  }

  void PlaceBlocks(std::mt19937_64& random) {
    const int64_t block_size = int64_t{1} << shape_.block_size_log2;
    int64_t total = 1;  // one block more than is used
    for (const AttentionSequence& sequence : sequences_) {
      const int64_t blocks = (sequence.slots + block_size - 1) / block_size;
      table_stride_ = std::max(table_stride_, blocks);
      total += blocks;
    }
    const int64_t layers = 2;  // the view is of the second
    const int64_t head_values = block_size * shape_.head_dim;
    const int64_t row = shape_.kv_heads * shape_.head_dim;
    // Floats as [head][token][dim], int8 as [token] rows of values, scales and three bytes more.
    const bool is_int8 = shape_.type == KvType::kInt8;
    const int64_t int8_row = row + 4 * shape_.kv_heads + 3;
    const int64_t half_values = is_int8 ? block_size * int8_row : block_size * row;
    const int64_t layer_values = 2 * half_values;
    view_ = {.type = shape_.type,
             .block_size_log2 = shape_.block_size_log2,
             .block_stride = shape_.layer_major ? layer_values : layers * layer_values,
             .token_stride = is_int8 ? int8_row : shape_.head_dim,
             .head_stride = is_int8 ? shape_.head_dim : head_values,
             .value_offset = half_values,
             .scale_offset = row};
    pool_.assign(total * layers * layer_values * KvTypeBytes(shape_.type), std::byte{0xff});  // NaN
    const int64_t layer_offset = shape_.layer_major ? total * layer_values : layer_values;
    view_.base = pool_.data() + layer_offset * KvTypeBytes(shape_.type);

    std::vector<int32_t> order(total);
    std::iota(order.begin(), order.end(), 0);
    if (!shape_.contiguous) std::shuffle(order.begin(), order.end(), random);
    block_tables_.assign(sequences_.size() * table_stride_, 0);
    int64_t next = 0;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      first_block_.push_back(static_cast<int32_t>(next));
      for (int64_t b = 0; b * block_size < sequences_[s].slots; ++b) {
        block_tables_[s * table_stride_ + b] = order[next++];
      }
      StoreSequence(s);
    }
  }

  void StoreSequence(size_t s) {
    for (int64_t slot = 0; slot < sequences_[s].slots; ++slot) {
      bool seen = false;
      for (const auto& ranges : sequences_[s].tokens) {
        for (const VisibleRange& range : ranges) {
          seen = seen || (slot >= range.begin && slot < range.end);
        }
      }
      if (!seen) continue;
      const int64_t index = slot >> shape_.block_size_log2;
      const int64_t block = block_tables_[s * table_stride_ + index];
      for (int64_t head = 0; head < shape_.kv_heads; ++head) {
        const int64_t row = block * view_.block_stride +
                            (slot - (index << shape_.block_size_log2)) * view_.token_stride;
        const int64_t at = row + head * view_.head_stride;
        const int64_t from = (slot * shape_.kv_heads + head) * shape_.head_dim;
        if (shape_.type == KvType::kInt8) {
          const int64_t scale = row + view_.scale_offset + 4 * head;
          PutInt8(at, scale, k_integers_[s], from);
          PutInt8(at + view_.value_offset, scale + view_.value_offset, v_integers_[s], from);
          continue;
        }
        for (int64_t d = 0; d < shape_.head_dim; ++d) {
          Put(at + d, k_[s][from + d]);
          Put(at + view_.value_offset + d, v_[s][from + d]);
        }
      }
    }
  }

  void PutInt8(int64_t at, int64_t scale, const Integers& integers, int64_t from) {
    auto* base = static_cast<int8_t*>(view_.base);
    for (int64_t d = 0; d < shape_.head_dim; ++d) {
      base[at + d] = static_cast<int8_t>(integers.values[from + d]);
    }
    std::memcpy(base + scale, &integers.scales[from / shape_.head_dim], sizeof(float));
  }

  void Put(int64_t offset, float value) {
    if (shape_.type == KvType::kF32) {
      static_cast<float*>(view_.base)[offset] = value;
    } else {
      static_cast<uint16_t*>(view_.base)[offset] =
          shape_.type == KvType::kF16 ? F32ToF16(value) : F32ToBF16(value);
    }
  }

  State ExpectedSegment(int64_t token, int64_t head, int64_t begin) const {
    State state;
    state.o.assign(shape_.head_dim, 0.0f);
    for (int64_t tile = begin; tile < begin + 256; tile += 64) {
      std::vector<int64_t> visible;
      for (int64_t slot = tile; slot < std::min(tile + 64, SlotsOf(token)); ++slot) {
        if (Sees(token, slot)) visible.push_back(slot);
      }
      if (visible.empty()) continue;
      std::vector<float> scores;
      float maximum = state.m;
      for (const int64_t slot : visible) {
        scores.push_back(ExpectedScore(token, head, slot));
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
        if (shape_.type == KvType::kInt8) continue;
        for (int64_t d = 0; d < shape_.head_dim; ++d) {
          state.o[d] = std::fma(p, Row(v_, token, head, visible[j])[d], state.o[d]);
        }
      }
      if (shape_.type == KvType::kInt8) ExpectedInt8Values(token, head, visible, weights, state.o);
      state.m = maximum;
      state.any = true;
    }
    return state;
  }

  float ExpectedScore(int64_t token, int64_t head, int64_t slot) const {
    if (shape_.type != KvType::kInt8) {
      return plain::Dot16(Q(token, head), Row(k_, token, head, slot), shape_.head_dim) * kScale;
    }
    std::vector<int> q;
    const float scale_q = Quantize(Q(token, head), shape_.head_dim, 32767, q);
    const Integers& k = k_integers_[sequence_of_token_[token]];
    const int64_t row = RowIndex(head, slot);
    int64_t sum = 0;
    for (int64_t d = 0; d < shape_.head_dim; ++d) sum += q[d] * k.values[row * shape_.head_dim + d];
    return static_cast<float>(sum) * (scale_q * kScale * k.scales[row]);
  }

  void ExpectedInt8Values(int64_t token, int64_t head, const std::vector<int64_t>& visible,
                          std::vector<float> weights, std::vector<float>& o) const {
    const Integers& v = v_integers_[sequence_of_token_[token]];
    for (size_t j = 0; j < visible.size(); ++j) weights[j] *= v.scales[RowIndex(head, visible[j])];
    std::vector<int> u;
    const float scale = Quantize(weights.data(), static_cast<int64_t>(weights.size()), 32767, u);
    for (int64_t d = 0; d < shape_.head_dim; ++d) {
      int64_t sum = 0;
      for (size_t j = 0; j < visible.size(); ++j) {
        sum += u[j] * v.values[RowIndex(head, visible[j]) * shape_.head_dim + d];
      }
      o[d] = std::fma(scale, static_cast<float>(sum), o[d]);
    }
  }

  std::vector<float> ExpectedRow(int64_t token, int64_t head) const {
    State state;
    for (int64_t begin = 0; begin < SlotsOf(token); begin += 256) {
      const State next = ExpectedSegment(token, head, begin);
      if (!next.any) continue;
      if (!state.any) {
        state = next;
        continue;
      }
      const float maximum = std::max(state.m, next.m);
      const float a = plain::Exp(state.m - maximum);
      const float b = plain::Exp(next.m - maximum);
      for (int i = 0; i < 16; ++i) state.l[i] = std::fma(next.l[i], b, state.l[i] * a);
      for (int64_t d = 0; d < shape_.head_dim; ++d) {
        state.o[d] = std::fma(next.o[d], b, state.o[d] * a);
      }
      state.m = maximum;
    }
    std::vector<float> row(shape_.head_dim, 0.0f);
    if (!state.any) return row;
    const float sum = plain::Tree16(state.l.data());
    for (int64_t d = 0; d < shape_.head_dim; ++d) row[d] = state.o[d] / sum;
    return row;
  }

  const AttentionShape shape_;
  const std::vector<AttentionSequence> sequences_;
  std::vector<std::vector<float>> k_, v_;          // [sequence][slot, kv_head, d], as stored
  std::vector<Integers> k_integers_, v_integers_;  // int8 only
  std::vector<float> q_;
  std::vector<int32_t> sequence_of_token_;
  std::vector<VisibleRange> visible_;
  std::vector<int32_t> block_tables_;
  std::vector<int32_t> first_block_;
  int64_t table_stride_ = 0;
  std::vector<std::byte> pool_;
  KvLayerView view_;
};

}  // namespace baton
