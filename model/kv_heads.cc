#include "model/kv_heads.h"

namespace baton {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);

void CopyBytes(std::byte* to, const std::byte* from, int64_t bytes, Stream& stream) {
  stream.Copy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

KvLayerView FromHead(KvLayerView view, int32_t first) {
  const int64_t elements = first * view.head_stride;
  view.base = static_cast<std::byte*>(view.base) + elements * KvTypeBytes(view.type);
  // Scales are addressed from the base. In a pool that has them, an element is a byte.
  view.scale_offset += first * kScaleBytes - elements;
  return view;
}

void CopyKvHeads(const KvPoolLayout& layout, std::byte* pool, const BlockCopy& copy, KvHeads heads,
                 Stream& stream) {
  const KvLayout& group = layout.group(copy.group);
  const KvGroupSpec& spec = group.group();
  const int64_t element = KvTypeBytes(spec.type);
  std::byte* const part = pool + layout.offset(copy.group);
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    for (int32_t plane = 0; plane < group.planes(); ++plane) {
      std::byte* const to = part + group.PieceOffset(layer, plane, copy.to.value());
      const std::byte* const from = part + group.PieceOffset(layer, plane, copy.from.value());
      const int64_t row = group.token_stride(plane) * element;
      if (heads.count == spec.kv_heads) {  // the leading slots are contiguous, with their scales
        CopyBytes(to, from, copy.tokens * row, stream);
        continue;
      }
      const int64_t head = group.head_stride(plane) * element;
      const int64_t scales = group.scale_offset(plane) + heads.first * kScaleBytes;
      for (int32_t token = 0; token < copy.tokens; ++token) {
        const int64_t values = token * row + heads.first * head;
        CopyBytes(to + values, from + values, heads.count * head, stream);
        if (spec.type != KvType::kInt8) continue;
        CopyBytes(to + token * row + scales, from + token * row + scales, heads.count * kScaleBytes,
                  stream);
      }
    }
  }
}

}  // namespace baton
