// Inputs of paged attention with their memory, for tests: random Q, K and V, and a pool in a chosen
// layout with shuffled blocks.
//
// K and V are also kept per sequence (with scales too, if the pool has them), so a transcription of
// the numerics does not use blocks. Slots that no token sees are NaN in the pool. A slot's name
// determines its K and V, and a token's name its queries. Equal names in two cases therefore give
// equal values, wherever they are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/half.h"
#include "kernels/ops.h"
#include "tests/kernels/naive_fp8.h"
#include "tests/kernels/random_inputs.h"

namespace baton {

struct AttentionShape {
  int64_t query_heads = 6;
  int64_t kv_heads = 2;
  int64_t head_dim = 16;
  KvType type = KvType::kF16;
  int block_size_log2 = 4;
  bool layer_major = false;  // each layer has its own region; else a block has all its layers
  bool contiguous = false;   // without block tables
  bool share_runs = true;    // tokens refer to the same runs if possible
  int64_t row_padding = 3;   // unused bytes behind a token's row of a pool with scales
};

// A run of slots, as defined in NUMERICS §8.
struct CaseRun {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t tile_origin = 0;
  int32_t position_shift = 0;
};

// Tokens of one sequence, and the runs that each token sees.
struct AttentionSequence {
  int64_t slots = 0;
  std::vector<std::vector<CaseRun>> tokens;
  std::vector<uint64_t> slot_names = {};   // [slots]; empty: all different
  std::vector<uint64_t> token_names = {};  // [tokens]; empty: all different
};

// The last `count` tokens of a sequence of `slots`. Each sees itself and at most `window` slots
// before it.
inline AttentionSequence CausalSequence(int32_t slots, int32_t count, int32_t window = 1 << 30) {
  AttentionSequence sequence{.slots = slots, .tokens = {}};
  for (int32_t slot = slots - count; slot < slots; ++slot) {
    sequence.tokens.push_back({{std::max(0, slot - window), slot + 1}});
  }
  return sequence;
}

class AttentionInputs {
 public:
  AttentionInputs(const AttentionShape& shape, const std::vector<AttentionSequence>& sequences,
                  uint64_t seed)
      : shape_(shape), sequences_(sequences), seed_(seed) {
    const int64_t row = shape.kv_heads * shape.head_dim;
    for (size_t s = 0; s < sequences.size(); ++s) {
      std::vector<float>& k = k_.emplace_back();
      std::vector<float>& v = v_.emplace_back();
      for (int64_t slot = 0; slot < sequences[s].slots; ++slot) {
        const std::vector<float> both = Named(1, NameOf(sequences[s].slot_names, s, slot), 2 * row);
        k.insert(k.end(), both.begin(), both.begin() + row);
        v.insert(v.end(), both.begin() + row, both.end());
      }
      Store(k, scaled_k_.emplace_back());
      Store(v, scaled_v_.emplace_back());
    }
    PlaceTokens();
    std::mt19937_64 random(seed);
    PlaceBlocks(random);
  }

  // Returns arguments that are valid as long as this object. `out` is [tokens, query_heads,
  // head_dim].
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
                            .runs = runs_.data(),
                            .row_runs = row_runs_.data()};
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

  // The inputs, for transcriptions of other numerics. In pools with scales, `numbers` are those
  // that the bytes stand for, and `values` are numbers times scale.
  static constexpr float kScale = 0.25f;
  const AttentionShape& shape() const { return shape_; }
  const std::vector<CaseRun>& RunsOf(int64_t token) const { return *runs_of_token_[token]; }
  // Returns the token's query for `run`.
  const float* Q(int64_t token, int64_t head, const CaseRun& run) const {
    const int64_t row =
        run.position_shift == 0 ? token : query_rows_.at({token, run.position_shift});
    return q_.data() + row * q_stride() + head * shape_.head_dim;
  }
  struct StoredRow {
    const float* values = nullptr;
    const float* numbers = nullptr;
    float scale = 0;
  };
  StoredRow K(int64_t token, int64_t head, int64_t slot) const {
    return StoredRowOf(k_, scaled_k_, token, head, slot);
  }
  StoredRow V(int64_t token, int64_t head, int64_t slot) const {
    return StoredRowOf(v_, scaled_v_, token, head, slot);
  }
  // Appends `count` integers of magnitude up to `most` and returns their scale. Rounds to nearest
  // even, the current rounding mode.
  static float Quantize(const float* x, int64_t count, float most, std::vector<int>& out) {
    float amax = 0;
    for (int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float inverse = amax > 0 ? most / amax : 0;
    for (int64_t i = 0; i < count; ++i) {
      out.push_back(static_cast<int>(std::nearbyint(x[i] * inverse)));
    }
    return amax / most;
  }

 private:
  // Rows of head_dim bytes and the numbers that they stand for, with one scale per row.
  struct ScaledRows {
    std::vector<uint8_t> bytes;
    std::vector<float> numbers;
    std::vector<float> scales;
  };

  // Rounds `values` to the precision of the pool.
  void Store(std::vector<float>& values, ScaledRows& rows) const {
    if (HasScales(shape_.type)) {
      for (size_t row = 0; row < values.size(); row += shape_.head_dim) {
        StoreScaled(values.data() + row, rows);
        for (int64_t d = 0; d < shape_.head_dim; ++d) {
          values[row + d] = rows.numbers[row + d] * rows.scales.back();
        }
      }
      return;
    }
    for (float& value : values) {
      if (shape_.type == KvType::kF16) value = F16ToF32(F32ToF16(value));
      if (shape_.type == KvType::kBF16) value = BF16ToF32(F32ToBF16(value));
    }
  }
  void StoreScaled(const float* x, ScaledRows& rows) const {
    const size_t first = rows.bytes.size();
    rows.bytes.resize(first + shape_.head_dim);
    if (shape_.type == KvType::kFp8) {
      rows.scales.push_back(NaiveFp8Row(x, shape_.head_dim, rows.bytes.data() + first));
      for (int64_t d = 0; d < shape_.head_dim; ++d) {
        rows.numbers.push_back(static_cast<float>(NaiveFp8Value(rows.bytes[first + d])));
      }
      return;
    }
    std::vector<int> integers;
    rows.scales.push_back(Quantize(x, shape_.head_dim, 127, integers));
    rows.numbers.insert(rows.numbers.end(), integers.begin(), integers.end());
    std::copy(integers.begin(), integers.end(), rows.bytes.begin() + first);
  }
  int64_t q_stride() const { return shape_.query_heads * shape_.head_dim + 7; }
  StoredRow StoredRowOf(const std::vector<std::vector<float>>& rows,
                        const std::vector<ScaledRows>& scaled, int64_t token, int64_t head,
                        int64_t slot) const {
    StoredRow row{.values = Row(rows, token, head, slot)};
    if (HasScales(shape_.type)) {
      const ScaledRows& of = scaled[sequence_of_token_[token]];
      row.numbers = of.numbers.data() + RowIndex(head, slot) * shape_.head_dim;
      row.scale = of.scales[RowIndex(head, slot)];
    }
    return row;
  }

  static uint64_t NameOf(const std::vector<uint64_t>& names, uint64_t sequence, uint64_t index) {
    return names.empty() ? (sequence + 1) << 32 | index : names[index];
  }
  std::vector<float> Named(uint32_t kind, uint64_t name, int64_t count) const {
    std::seed_seq seeds{static_cast<uint32_t>(seed_), kind, static_cast<uint32_t>(name >> 32),
                        static_cast<uint32_t>(name)};
    std::mt19937 random(seeds);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  }
  const float* Row(const std::vector<std::vector<float>>& rows, int64_t token, int64_t head,
                   int64_t slot) const {
    return rows[sequence_of_token_[token]].data() + RowIndex(head, slot) * shape_.head_dim;
  }
  int64_t RowIndex(int64_t head, int64_t slot) const {
    return slot * shape_.kv_heads + head / (shape_.query_heads / shape_.kv_heads);
  }
  // Places the tokens' queries first. After them, for each sequence and shift, comes a row for each
  // token.
  void PlaceTokens() {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      sequence_of_token_.resize(sequence_of_token_.size() + sequences_[s].tokens.size(),
                                static_cast<int32_t>(s));
    }
    std::vector<std::vector<float>> queries(tokens());
    int64_t token = 0;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const int64_t first = token;
      std::map<int32_t, int64_t> offsets = {{0, 0}};
      for (size_t t = 0; t < sequences_[s].tokens.size(); ++t, ++token) {
        const uint64_t name = NameOf(sequences_[s].token_names, s, t);
        queries[token] = Named(2, name, q_stride());
        for (const CaseRun& run : sequences_[s].tokens[t]) {
          const int32_t shift = run.position_shift;
          if (!offsets.contains(shift)) {
            offsets[shift] = static_cast<int64_t>(queries.size()) - first;
            queries.resize(queries.size() + sequences_[s].tokens.size(),
                           std::vector<float>(q_stride(), std::nanf("")));
          }
          if (shift == 0) continue;
          query_rows_[{token, shift}] = token + offsets[shift];
          queries[token + offsets[shift]] =
              Named(3 + static_cast<uint32_t>(shift), name, q_stride());
        }
        PlaceRuns(sequences_[s].tokens[t], offsets, t == 0);
      }
    }
    for (const std::vector<float>& row : queries) q_.insert(q_.end(), row.begin(), row.end());
  }

  // Gives the last run other bounds in `runs_`, because only the token's own bounds may count.
  void PlaceRuns(const std::vector<CaseRun>& of_token, const std::map<int32_t, int64_t>& offsets,
                 bool first_of_sequence) {
    std::vector<VisibleRun> runs;
    for (const CaseRun& run : of_token) {
      runs.push_back({run.begin, run.end, run.tile_origin,
                      static_cast<int32_t>(offsets.at(run.position_shift))});
    }
    RowRuns row;
    row.run_count = static_cast<int32_t>(runs.size());
    if (!runs.empty()) {
      row.last_begin = std::exchange(runs.back().begin, runs.back().tile_origin);
      row.last_end = std::exchange(runs.back().end, 1 << 30);
    }
    const auto same = [](const VisibleRun& a, const VisibleRun& b) {
      return a.begin == b.begin && a.end == b.end && a.tile_origin == b.tile_origin &&
             a.query_offset == b.query_offset;
    };
    const bool shares = shape_.share_runs && !first_of_sequence &&
                        row_runs_.back().run_count == row.run_count &&
                        std::equal(runs.begin(), runs.end(), runs_.end() - row.run_count, same);
    if (!shares) runs_.insert(runs_.end(), runs.begin(), runs.end());
    row.first_run = static_cast<int32_t>(runs_.size()) - row.run_count;
    row_runs_.push_back(row);
    runs_of_token_.push_back(&of_token);
  }

  void PlaceBlocks(std::mt19937_64& random) {
    const int64_t block_size = int64_t{1} << shape_.block_size_log2;
    int64_t total = 1;  // one more block than is used
    for (const AttentionSequence& sequence : sequences_) {
      const int64_t blocks = (sequence.slots + block_size - 1) / block_size;
      table_stride_ = std::max(table_stride_, blocks);
      total += blocks;
    }
    const int64_t layers = 2;  // the view is the second layer
    const int64_t head_values = block_size * shape_.head_dim;
    const int64_t row = shape_.kv_heads * shape_.head_dim;
    // Floats are [head][token][dim]. With scales there is one row per token: values, scales and
    // unused bytes.
    const bool scaled = HasScales(shape_.type);
    const int64_t scaled_row = row + 4 * shape_.kv_heads + shape_.row_padding;
    const int64_t half_values = scaled ? block_size * scaled_row : block_size * row;
    const int64_t layer_values = 2 * half_values;
    view_ = {.type = shape_.type,
             .block_size_log2 = shape_.block_size_log2,
             .block_stride = shape_.layer_major ? layer_values : layers * layer_values,
             .token_stride = scaled ? scaled_row : shape_.head_dim,
             .head_stride = scaled ? shape_.head_dim : head_values,
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
      for (const auto& runs : sequences_[s].tokens) {
        for (const CaseRun& run : runs) seen = seen || (slot >= run.begin && slot < run.end);
      }
      if (!seen) continue;
      const int64_t index = slot >> shape_.block_size_log2;
      const int64_t block = block_tables_[s * table_stride_ + index];
      for (int64_t head = 0; head < shape_.kv_heads; ++head) {
        const int64_t row = block * view_.block_stride +
                            (slot - (index << shape_.block_size_log2)) * view_.token_stride;
        const int64_t at = row + head * view_.head_stride;
        const int64_t from = (slot * shape_.kv_heads + head) * shape_.head_dim;
        if (HasScales(shape_.type)) {
          const int64_t scale = row + view_.scale_offset + 4 * head;
          PutScaled(at, scale, scaled_k_[s], from);
          PutScaled(at + view_.value_offset, scale + view_.value_offset, scaled_v_[s], from);
          continue;
        }
        for (int64_t d = 0; d < shape_.head_dim; ++d) {
          Put(at + d, k_[s][from + d]);
          Put(at + view_.value_offset + d, v_[s][from + d]);
        }
      }
    }
  }

  void PutScaled(int64_t at, int64_t scale, const ScaledRows& rows, int64_t from) {
    auto* base = static_cast<uint8_t*>(view_.base);
    std::memcpy(base + at, &rows.bytes[from], shape_.head_dim);
    std::memcpy(base + scale, &rows.scales[from / shape_.head_dim], sizeof(float));
  }

  void Put(int64_t offset, float value) {
    if (shape_.type == KvType::kF32) {
      static_cast<float*>(view_.base)[offset] = value;
    } else {
      static_cast<uint16_t*>(view_.base)[offset] =
          shape_.type == KvType::kF16 ? F32ToF16(value) : F32ToBF16(value);
    }
  }

  const AttentionShape shape_;
  const std::vector<AttentionSequence> sequences_;
  const uint64_t seed_;
  std::vector<std::vector<float>> k_, v_;        // [sequence][slot, kv_head, d], as stored
  std::vector<ScaledRows> scaled_k_, scaled_v_;  // pools with scales only
  std::vector<float> q_;
  std::vector<int32_t> sequence_of_token_;
  std::vector<const std::vector<CaseRun>*> runs_of_token_;
  std::map<std::pair<int64_t, int32_t>, int64_t> query_rows_;  // by (token, shift), shift not 0
  std::vector<VisibleRun> runs_;
  std::vector<RowRuns> row_runs_;
  std::vector<int32_t> block_tables_;
  std::vector<int32_t> first_block_;
  int64_t table_stride_ = 0;
  std::vector<std::byte> pool_;
  KvLayerView view_;
};

}  // namespace baton
