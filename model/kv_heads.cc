#include "model/kv_heads.h"

#include "common/check.h"

namespace baton {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);

}  // namespace

KvCacheSpec OfOneRank(KvCacheSpec model, int32_t ranks) {
  for (KvGroupSpec& group : model.groups) {
    CHECK_EQ(group.kv_heads % ranks, 0);
    group.kv_heads /= ranks;
  }
  return model;
}

TensorRank RankInPool(TensorRank rank, const KvPoolLayout& layout, int32_t kv_heads) {
  if (layout.group(0).group().kv_heads == kv_heads) return rank;
  CHECK_EQ(layout.group(0).group().kv_heads, kv_heads / rank.degree);
  return {};
}

KvLayerView FromHead(KvLayerView view, int32_t first) {
  const int64_t elements = first * view.head_stride;
  view.base = static_cast<std::byte*>(view.base) + elements * KvTypeBytes(view.type);
  // Scales are addressed from the base. In a pool that has them, an element is a byte.
  view.scale_offset += first * kScaleBytes - elements;
  return view;
}

void AppendKvHeadRuns(const KvPoolLayout& layout, const BlockCopy& copy, KvHeads heads,
                      std::vector<ByteRun>& runs) {
  const KvLayout& group = layout.group(copy.group);
  const KvGroupSpec& spec = group.group();
  const int64_t element = KvTypeBytes(spec.type);
  const int64_t part = layout.offset(copy.group);
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    for (int32_t plane = 0; plane < group.planes(); ++plane) {
      const int64_t to = part + group.PieceOffset(layer, plane, copy.to.value());
      const int64_t from = part + group.PieceOffset(layer, plane, copy.from.value());
      const auto append = [&](int64_t offset, int64_t bytes) {
        runs.push_back({.from = from + offset, .to = to + offset, .bytes = bytes});
      };
      const int64_t row = group.token_stride(plane) * element;
      if (heads.count == spec.kv_heads) {  // the leading slots are contiguous, with their scales
        append(0, copy.tokens * row);
        continue;
      }
      const int64_t head = group.head_stride(plane) * element;
      const int64_t scales = group.scale_offset(plane) + heads.first * kScaleBytes;
      for (int32_t token = 0; token < copy.tokens; ++token) {
        append(token * row + heads.first * head, heads.count * head);
        if (!HasScales(spec.type)) continue;
        append(token * row + scales, heads.count * kScaleBytes);
      }
    }
  }
}

}  // namespace baton
