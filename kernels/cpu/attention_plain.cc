// NUMERICS §8, one (token, query head) at a time.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/plain_math.h"
#include "kernels/half.h"

namespace baton::plain {
namespace {

float Load(const KvLayerView& kv, int64_t offset) {
  switch (kv.type) {
    case KvType::kF32:
      return static_cast<const float*>(kv.base)[offset];
    case KvType::kF16:
      return F16ToF32(static_cast<const uint16_t*>(kv.base)[offset]);
    case KvType::kBF16:
      return BF16ToF32(static_cast<const uint16_t*>(kv.base)[offset]);
  }
  return 0;
}

// Element offset of K for a slot of `sequence` (kv head 0, d 0).
int64_t SlotOffset(const PagedAttentionArgs& args, int64_t sequence, int64_t slot) {
  const KvLayerView& kv = args.kv;
  const int64_t index = slot >> kv.block_size_log2;
  const int64_t block = args.block_tables != nullptr
                            ? args.block_tables[sequence * args.table_stride + index]
                            : args.first_block[sequence] + index;
  const int64_t in_block = slot - (index << kv.block_size_log2);
  return block * kv.block_stride + in_block * kv.token_stride;
}

bool IsVisible(const VisibleRange* visible, int64_t slot) {
  for (int i = 0; i < kMaxVisibleRanges; ++i) {
    if (slot >= visible[i].begin && slot < visible[i].end) return true;
  }
  return false;
}

// Takes the visible slots of the tile that starts at `begin` into the state.
void AddTile(const PagedAttentionArgs& args, int64_t token, const float* q, int64_t kv_head,
             int64_t begin, AttentionState& state) {
  const VisibleRange* visible = args.visible + token * kMaxVisibleRanges;
  const int64_t sequence = args.sequence_of_token[token];
  int64_t offset[kAttentionTile];  // of K in the pool, visible slots only
  float score[kAttentionTile];
  int lane[kAttentionTile];
  int count = 0;
  float maximum = state.maximum;
  for (int j = 0; j < kAttentionTile; ++j) {
    if (!IsVisible(visible, begin + j)) continue;
    offset[count] = SlotOffset(args, sequence, begin + j) + kv_head * args.kv.head_stride;
    lane[count] = j % kLanes;
    float k[kMaxHeadDim];
    for (int64_t d = 0; d < args.head_dim; ++d) k[d] = Load(args.kv, offset[count] + d);
    score[count] = Dot16(q, k, args.head_dim) * args.softmax_scale;
    maximum = score[count] > maximum ? score[count] : maximum;
    ++count;
  }
  if (count == 0) return;
  const float alpha = Exp(state.maximum - maximum);
  for (int64_t d = 0; d < args.head_dim; ++d) state.output[d] *= alpha;
  for (float& sum : state.lane_sums) sum *= alpha;
  for (int j = 0; j < count; ++j) {
    const float p = Exp(score[j] - maximum);
    state.lane_sums[lane[j]] += p;
    const int64_t v = offset[j] + args.kv.value_offset;
    for (int64_t d = 0; d < args.head_dim; ++d) {
      state.output[d] = std::fma(p, Load(args.kv, v + d), state.output[d]);
    }
  }
  state.maximum = maximum;
  state.any_visible = true;
}

}  // namespace

void AttentionSegment(const PagedAttentionArgs& args, int64_t token_begin, int64_t token_end,
                      int64_t kv_head, int64_t segment, AttentionState* states) {
  const int64_t heads = args.query_heads / args.kv_heads;
  for (int64_t token = token_begin; token < token_end; ++token) {
    for (int64_t head = 0; head < heads; ++head) {
      const float* q = args.q + token * args.q_stride + (kv_head * heads + head) * args.head_dim;
      AttentionState& state = states[(token - token_begin) * heads + head];
      state.maximum = -std::numeric_limits<float>::infinity();
      std::fill_n(state.lane_sums, kLanes, 0.0f);
      std::fill_n(state.output, args.head_dim, 0.0f);
      state.any_visible = false;
      const int64_t begin = segment * kAttentionSegment;
      for (int64_t tile = begin; tile < begin + kAttentionSegment; tile += kAttentionTile) {
        AddTile(args, token, q, kv_head, tile, state);
      }
    }
  }
}

}  // namespace baton::plain
