// Change of K and V (NUMERICS §7), for all instruction sets. It takes far less time than the layer
// whose K and V it compares.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/plain_math.h"
#include "kernels/stored_number.h"

namespace baton::plain {
namespace {

// Sum of squared differences from one head's row. `row`: of the token's K or V in the pool.
float SquaredChange(const CompareKvArgs& args, const float* fresh, int64_t row, int64_t head) {
  const KvLayerView& kv = args.kv;
  float scale = 1;
  if (HasScales(kv.type)) {
    const int64_t offset = row + kv.scale_offset + head * int64_t{sizeof(float)};
    std::memcpy(&scale, static_cast<const std::byte*>(kv.base) + offset, sizeof(scale));
  }
  float change[kMaxHeadDim];
  for (int64_t d = 0; d < args.head_dim; ++d) {
    change[d] = fresh[d] - StoredNumber(kv, row + head * kv.head_stride + d) * scale;
  }
  return Dot16(change, change, args.head_dim);
}

}  // namespace

void CompareKv(const CompareKvArgs& args, int64_t token_begin, int64_t token_end) {
  const KvLayerView& kv = args.kv;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slots[token];
    float* const changes = args.changes + token * 2 * args.kv_heads;
    if (slot < 0) std::fill_n(changes, 2 * args.kv_heads, 0.0f);
    for (int64_t head = 0; slot >= 0 && head < args.kv_heads; ++head) {
      const int64_t block = slot >> kv.block_size_log2;
      const int64_t in_block = slot - (block << kv.block_size_log2);
      const int64_t row = block * kv.block_stride + in_block * kv.token_stride;
      const int64_t source = token * args.stride + head * args.head_dim;
      changes[2 * head] = SquaredChange(args, args.k + source, row, head);
      changes[2 * head + 1] = SquaredChange(args, args.v + source, row + kv.value_offset, head);
    }
  }
}

}  // namespace baton::plain
