#include "kernels/tensor_core/tensor_core_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/fp8.h"
#include "kernels/tensor_core/exp2_weight.h"
#include "kernels/tensor_core/half_operands.h"

namespace baton {
namespace {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLargestReference = 2097152.0f;  // 2^21

// The types of the two products (the table of §5).
struct PoolOperands {
  HalfType score;  // of q and k
  HalfType value;  // of p and v
  bool is_scaled;  // the pool has scales
  float bias;      // B
};
PoolOperands OperandsOf(KvType type) {
  switch (type) {
    case KvType::kBF16:
      return {HalfType::kBF16, HalfType::kBF16, false, 0};
    case KvType::kF16:
      return {HalfType::kF16, HalfType::kF16, false, kT1F16Bias};
    case KvType::kInt8:
    case KvType::kFp8:
    case KvType::kF32:  // not read here
      break;
  }
  return {HalfType::kF16, HalfType::kBF16, true, 0};
}

// Returns the element offset of K for a slot (kv head 0, d 0).
int64_t PoolRowOf(const PagedAttentionArgs& args, int64_t token, int64_t slot) {
  const KvLayerView& kv = args.kv;
  const int64_t sequence = args.sequence_of_token[token];
  const int64_t index = slot >> kv.block_size_log2;
  const int64_t block = args.block_tables != nullptr
                            ? args.block_tables[sequence * args.table_stride + index]
                            : args.first_block[sequence] + index;
  return block * kv.block_stride + (slot - (index << kv.block_size_log2)) * kv.token_stride;
}

// Visible slots [first, last) of one tile, counted from the tile's begin, as operands of the two
// products. Other slots are unset, except that their V is zero.
struct TileOperands {
  int first = 0;
  int last = 0;
  const uint16_t* key[kAttentionTile];                // [head_dim]
  uint16_t widened_key[kAttentionTile][kMaxHeadDim];  // of pools with scales
  float key_scale[kAttentionTile];
  float value_scale[kAttentionTile];
  uint16_t value[kMaxHeadDim][kAttentionTile];
};

// Returns the number that a byte of a pool with scales stands for.
float NumberOf(KvType type, uint8_t byte) {
  return type == KvType::kInt8 ? static_cast<int8_t>(byte) : Fp8ToF32(byte);
}

// Reads a slot of a pool with scales. Both operand types hold its numbers exactly.
void ReadScaledSlot(const PagedAttentionArgs& args, int64_t row, int64_t kv_head, int j,
                    TileOperands& tile) {
  const KvLayerView& kv = args.kv;
  const auto* k = static_cast<const uint8_t*>(kv.base) + row;
  const auto* v = k + kv.value_offset;
  const int64_t scale = kv.scale_offset + kv_head * int64_t{sizeof(float)};
  std::memcpy(&tile.key_scale[j], k + scale, sizeof(float));
  std::memcpy(&tile.value_scale[j], v + scale, sizeof(float));
  const int64_t at = kv_head * kv.head_stride;
  for (int64_t d = 0; d < args.head_dim; ++d) {
    tile.widened_key[j][d] = F32ToF16(NumberOf(kv.type, k[at + d]));
    tile.value[d][j] = F32ToBF16(NumberOf(kv.type, v[at + d]));
  }
  tile.key[j] = tile.widened_key[j];
}

// Reads the tile that starts at slot `begin`.
void ReadTile(const PagedAttentionArgs& args, int64_t token, int64_t kv_head, const VisibleRun& run,
              int64_t begin, TileOperands& tile) {
  const auto in_tile = [begin](int64_t slot) {
    return static_cast<int>(std::clamp<int64_t>(slot - begin, 0, kAttentionTile));
  };
  tile.first = in_tile(run.begin);
  tile.last = in_tile(run.end);
  if (tile.first >= tile.last) return;
  const KvLayerView& kv = args.kv;
  for (int64_t d = 0; d < args.head_dim; ++d) std::fill_n(tile.value[d], kAttentionTile, 0);
  for (int j = tile.first; j < tile.last; ++j) {
    const int64_t row = PoolRowOf(args, token, begin + j);
    if (HasScales(kv.type)) {
      ReadScaledSlot(args, row, kv_head, j, tile);
      continue;
    }
    const uint16_t* k = static_cast<const uint16_t*>(kv.base) + row + kv_head * kv.head_stride;
    tile.key[j] = k;
    for (int64_t d = 0; d < args.head_dim; ++d) tile.value[d][j] = k[kv.value_offset + d];
  }
}

// Returns M' for scores whose largest product with the factor is `largest`.
float NextReference(float reference, float largest, float bias) {
  const float tile = std::ceil(largest) - bias;
  if (std::isnan(reference) || !(std::fabs(tile) < kLargestReference)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const bool is_first = reference == -std::numeric_limits<float>::infinity();
  return is_first || tile > reference + kT1Slack ? tile : reference;
}

// Adds the visible slots of a tile to a state. `q` has head_dim operands.
void AddTensorCoreTile(const PagedAttentionArgs& args, const PoolOperands& pool,
                       const DotModel& model, const TileOperands& tile, const uint16_t* q,
                       TensorCoreState& state) {
  const float factor = args.softmax_scale * kLog2E;
  const ScoreScale scale = pool.is_scaled ? ScoreScale{1.0f, 1.0f} : ScoreScale{factor, 1 / factor};
  float z[kAttentionTile];
  float largest = -std::numeric_limits<float>::infinity();
  for (int j = tile.first; j < tile.last; ++j) {
    z[j] = FusedDot(model, pool.score, q, tile.key[j], args.head_dim, 0.0f);
    if (pool.is_scaled) z[j] *= factor * tile.key_scale[j];
    largest = z[j] > largest || std::isnan(z[j]) ? z[j] : largest;  // a NaN stays
  }
  const float reference = NextReference(state.reference, largest * scale.factor, pool.bias);
  if (std::isnan(reference) || (reference != state.reference && !state.saw_nothing())) {
    const float change = PowerOfTwo(state.reference - reference);
    state.sum *= change;
    for (int64_t d = 0; d < args.head_dim; ++d) state.output[d] *= change;
  }
  state.reference = reference;
  if (std::isnan(reference)) return;  // nothing else of this state reaches a result

  uint16_t weights[kAttentionTile] = {};
  uint16_t scaled[kAttentionTile] = {};
  uint16_t ones[kAttentionTile];
  std::fill_n(ones, kAttentionTile, HalfOne(pool.value));
  for (int j = tile.first; j < tile.last; ++j) {
    const float p = Exp2Weight(z[j], scale, reference);
    weights[j] = RoundToHalf(pool.value, p);
    scaled[j] = pool.is_scaled ? RoundToHalf(pool.value, p * tile.value_scale[j]) : weights[j];
  }
  state.sum = FusedDot(model, pool.value, weights, ones, kAttentionTile, state.sum);
  for (int64_t d = 0; d < args.head_dim; ++d) {
    state.output[d] =
        FusedDot(model, pool.value, scaled, tile.value[d], kAttentionTile, state.output[d]);
  }
}

int64_t SegmentsOf(const VisibleRun& run) {
  if (run.begin >= run.end) return 0;
  return (int64_t{run.end} - run.tile_origin + kAttentionSegment - 1) / kAttentionSegment;
}

// Merges all segments of a token into `rows` [query_heads / kv_heads].
void ComputeRows(const PagedAttentionArgs& args, const DotModel& model, int64_t token,
                 int64_t kv_head, std::vector<TensorCoreState>& rows) {
  const int64_t segments = TensorCoreSegments(args, token);
  std::vector<TensorCoreState> groups, next;
  for (int64_t group = 0; group < segments; group += kT1GroupSegments) {
    groups.assign(rows.size(), {});
    const int64_t end = std::min<int64_t>(group + kT1GroupSegments, segments);
    for (int64_t segment = group; segment < end; ++segment) {
      next.assign(rows.size(), {});
      ComputeTensorCoreSegment(args, token, kv_head, segment, next.data(), model);
      for (size_t i = 0; i < rows.size(); ++i) {
        MergeTensorCoreState(groups[i], next[i], args.head_dim);
      }
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      MergeTensorCoreState(rows[i], groups[i], args.head_dim);
    }
  }
}

}  // namespace

int64_t TensorCoreSegments(const PagedAttentionArgs& args, int64_t token) {
  int64_t segments = 0;
  for (int64_t run = 0; run < args.row_runs[token].run_count; ++run) {
    segments += SegmentsOf(RunOf(args, token, run));
  }
  return segments;
}

void ComputeTensorCoreSegment(const PagedAttentionArgs& args, int64_t token, int64_t kv_head,
                              int64_t number, TensorCoreState* states, const DotModel& model) {
  int64_t index = 0;
  VisibleRun run = RunOf(args, token, index);
  while (number >= SegmentsOf(run)) {
    number -= SegmentsOf(run);
    run = RunOf(args, token, ++index);
  }
  const PoolOperands pool = OperandsOf(args.kv.type);
  const int64_t heads = args.query_heads / args.kv_heads;
  const float* row = args.q + (token + run.query_offset) * args.q_stride;
  std::vector<uint16_t> queries(static_cast<size_t>(heads * args.head_dim));
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i] = RoundToHalf(pool.score, row[kv_head * heads * args.head_dim + i]);
  }
  const int64_t begin = run.tile_origin + number * kAttentionSegment;
  for (int64_t at = begin; at < begin + kAttentionSegment; at += kAttentionTile) {
    TileOperands tile;
    ReadTile(args, token, kv_head, run, at, tile);
    if (tile.first >= tile.last) continue;
    for (int64_t head = 0; head < heads; ++head) {
      AddTensorCoreTile(args, pool, model, tile, queries.data() + head * args.head_dim,
                        states[head]);
    }
  }
}

void MergeTensorCoreState(TensorCoreState& running, const TensorCoreState& next, int64_t head_dim) {
  if (next.saw_nothing()) return;
  if (running.saw_nothing()) {
    running = next;
    return;
  }
  const bool is_nan = std::isnan(running.reference) || std::isnan(next.reference);
  const float reference = is_nan ? std::numeric_limits<float>::quiet_NaN()
                                 : std::max(running.reference, next.reference);
  const float a = PowerOfTwo(running.reference - reference);
  const float b = PowerOfTwo(next.reference - reference);
  running.reference = reference;
  running.sum = std::fma(next.sum, b, running.sum * a);
  for (int64_t d = 0; d < head_dim; ++d) {
    running.output[d] = std::fma(next.output[d], b, running.output[d] * a);
  }
}

void FinishTensorCoreState(const TensorCoreState& state, int64_t head_dim, float* out) {
  if (state.saw_nothing()) {
    std::fill_n(out, head_dim, 0.0f);
    return;
  }
  const float inverse =
      std::isnan(state.reference) ? std::numeric_limits<float>::quiet_NaN() : 1 / state.sum;
  for (int64_t d = 0; d < head_dim; ++d) out[d] = state.output[d] * inverse;
}

void TensorCoreAttention(const PagedAttentionArgs& args, int64_t token_begin, int64_t token_end,
                         const DotModel& model) {
  const int64_t heads = args.query_heads / args.kv_heads;
  std::vector<TensorCoreState> rows;
  for (int64_t token = token_begin; token < token_end; ++token) {
    for (int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
      rows.assign(static_cast<size_t>(heads), {});
      ComputeRows(args, model, token, kv_head, rows);
      for (int64_t i = 0; i < heads; ++i) {
        const int64_t at = token * args.query_heads + kv_head * heads + i;
        FinishTensorCoreState(rows[i], args.head_dim, args.out + at * args.head_dim);
      }
    }
  }
}

}  // namespace baton
