// Plain attention (NUMERICS §8), one (token, query head) at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/plain_math.h"
#include "kernels/stored_number.h"

namespace baton::plain {
namespace {

// Returns the element offset of K for a slot of `sequence` (kv head 0, d 0).
int64_t SlotOffset(const PagedAttentionArgs& args, int64_t sequence, int64_t slot) {
  const KvLayerView& kv = args.kv;
  const int64_t index = slot >> kv.block_size_log2;
  const int64_t block = args.block_tables != nullptr
                            ? args.block_tables[sequence * args.table_stride + index]
                            : args.first_block[sequence] + index;
  const int64_t in_block = slot - (index << kv.block_size_log2);
  return block * kv.block_stride + in_block * kv.token_stride;
}

// Slots of one tile that a token sees, in rising order.
struct VisibleSlots {
  int count = 0;
  int64_t offset[kAttentionTile];  // of the token's K row in the pool
  int lane[kAttentionTile];
};

VisibleSlots FindVisible(const PagedAttentionArgs& args, int64_t token, const VisibleRun& run,
                         int64_t begin) {
  VisibleSlots slots;
  for (int j = 0; j < kAttentionTile; ++j) {
    const int64_t slot = begin + j;
    if (slot < run.begin || slot >= run.end) continue;
    slots.offset[slots.count] = SlotOffset(args, args.sequence_of_token[token], slot);
    slots.lane[slots.count++] = j % kLanes;
  }
  return slots;
}

// Returns the scale of one head's row, or 1 if the pool has no scales. `at` is 0 for K and
// value_offset for V.
float ScaleOf(const KvLayerView& kv, int64_t row, int64_t at, int64_t kv_head) {
  if (!HasScales(kv.type)) return 1;
  const int64_t offset = row + at + kv.scale_offset + kv_head * int64_t{sizeof(float)};
  float scale;
  std::memcpy(&scale, static_cast<const std::byte*>(kv.base) + offset, sizeof(scale));
  return scale;
}

// Step 1: score[i] for slots.offset[i]. A product with a scale of 1 changes nothing.
void Score(const PagedAttentionArgs& args, const float* q, int64_t kv_head,
           const VisibleSlots& slots, float* score) {
  for (int i = 0; i < slots.count; ++i) {
    const int64_t offset = slots.offset[i] + kv_head * args.kv.head_stride;
    float k[kMaxHeadDim];
    for (int64_t d = 0; d < args.head_dim; ++d) k[d] = StoredNumber(args.kv, offset + d);
    score[i] = Dot16(q, k, args.head_dim) *
               (args.softmax_scale * ScaleOf(args.kv, slots.offset[i], 0, kv_head));
  }
}

void ScoreInt8(const PagedAttentionArgs& args, const float* q, int64_t kv_head,
               const VisibleSlots& slots, float* score) {
  const Int16Row row = QuantizeRow(q, args.head_dim, 32767.0f);
  const float factor = row.scale * args.softmax_scale;
  for (int i = 0; i < slots.count; ++i) {
    const auto* k =
        static_cast<const int8_t*>(args.kv.base) + slots.offset[i] + kv_head * args.kv.head_stride;
    int32_t sum = 0;
    for (int64_t d = 0; d < args.head_dim; ++d) sum += row.values[d] * k[d];
    score[i] = static_cast<float>(sum) * (factor * ScaleOf(args.kv, slots.offset[i], 0, kv_head));
  }
}

// Adds the values of step 4. p[i] is the weight of slots.offset[i].
void AddValues(const PagedAttentionArgs& args, int64_t kv_head, const VisibleSlots& slots,
               const float* p, float* output) {
  for (int i = 0; i < slots.count; ++i) {
    const float weight = p[i] * ScaleOf(args.kv, slots.offset[i], args.kv.value_offset, kv_head);
    const int64_t v = slots.offset[i] + kv_head * args.kv.head_stride + args.kv.value_offset;
    for (int64_t d = 0; d < args.head_dim; ++d) {
      output[d] = std::fma(weight, StoredNumber(args.kv, v + d), output[d]);
    }
  }
}

void AddInt8Values(const PagedAttentionArgs& args, int64_t kv_head, const VisibleSlots& slots,
                   const float* p, float* output) {
  const int8_t* v[kAttentionTile];
  float w[kAttentionTile];
  for (int i = 0; i < slots.count; ++i) {
    const int64_t at = args.kv.value_offset;
    v[i] = static_cast<const int8_t*>(args.kv.base) + slots.offset[i] + at +
           kv_head * args.kv.head_stride;
    w[i] = p[i] * ScaleOf(args.kv, slots.offset[i], at, kv_head);
  }
  const Int16Row weights = QuantizeWeights(w, slots.count);
  for (int64_t d = 0; d < args.head_dim; ++d) {
    int32_t sum = 0;
    for (int i = 0; i < slots.count; ++i) sum += weights.values[i] * v[i][d];
    output[d] = std::fma(weights.scale, static_cast<float>(sum), output[d]);
  }
}

// Adds the slots of `run` in the tile that starts at `begin` to the state.
void AddTile(const PagedAttentionArgs& args, int64_t token, const VisibleRun& run, const float* q,
             int64_t kv_head, int64_t begin, AttentionState& state) {
  const VisibleSlots slots = FindVisible(args, token, run, begin);
  if (slots.count == 0) return;
  const bool is_int8 = args.kv.type == KvType::kInt8;
  float p[kAttentionTile];  // scores, then exponentials
  (is_int8 ? ScoreInt8 : Score)(args, q, kv_head, slots, p);
  float maximum = state.maximum;
  for (int i = 0; i < slots.count; ++i) maximum = p[i] > maximum ? p[i] : maximum;
  const float alpha = Exp(state.maximum - maximum);
  for (int64_t d = 0; d < args.head_dim; ++d) state.output[d] *= alpha;
  for (float& sum : state.lane_sums) sum *= alpha;
  for (int i = 0; i < slots.count; ++i) {
    p[i] = Exp(p[i] - maximum);
    state.lane_sums[slots.lane[i]] += p[i];
  }
  (is_int8 ? AddInt8Values : AddValues)(args, kv_head, slots, p, state.output);
  state.maximum = maximum;
  state.any_visible = true;
}

}  // namespace

void AttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                      AttentionState* states) {
  const int64_t heads = args.query_heads / args.kv_heads;
  for (int64_t kv_head = unit.kv_head_begin; kv_head < unit.kv_head_end; ++kv_head) {
    for (int64_t token = unit.token_begin; token < unit.token_end; ++token) {
      const VisibleRun run = RunOf(args, token, unit.run);
      const float* row = args.q + (token + run.query_offset) * args.q_stride;
      for (int64_t head = 0; head < heads; ++head) {
        const float* q = row + (kv_head * heads + head) * args.head_dim;
        AttentionState& state = *states++;
        state.maximum = -std::numeric_limits<float>::infinity();
        std::fill_n(state.lane_sums, kLanes, 0.0f);
        std::fill_n(state.output, args.head_dim, 0.0f);
        state.any_visible = false;
        const int64_t begin = run.tile_origin + unit.segment * kAttentionSegment;
        for (int64_t tile = begin; tile < begin + kAttentionSegment; tile += kAttentionTile) {
          AddTile(args, token, run, q, kv_head, tile, state);
        }
      }
    }
  }
}

}  // namespace baton::plain
