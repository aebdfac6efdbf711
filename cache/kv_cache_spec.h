// What a model's KV cache consists of, and how one block of it lies in memory.
//
// KvCacheSpec lists KV groups; each group has its own pool and one block table per sequence, and
// one block id spans all layers of its group. A plain Llama has a single full-attention group.
// KvLayout gives every offset; kernels, transfer plans and `inspect` read it, nobody computes
// strides by hand.
//
// Thread safety: immutable values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv_type.h"

namespace baton {

enum class KvGroupKind : uint8_t { kFullAttention, kSlidingWindow, kRecurrentState };

struct KvGroupSpec {
  KvGroupKind kind = KvGroupKind::kFullAttention;
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  KvType type = KvType::kF16;
  int32_t window = 0;  // slots, sliding window only

  bool operator==(const KvGroupSpec&) const = default;
};

struct KvCacheSpec {
  std::vector<KvGroupSpec> groups;

  bool operator==(const KvCacheSpec&) const = default;
};

// Block-major: [block][layer][K|V][token][head][dim], one block is one contiguous run.
// Layer-major: [layer][K|V][block][token][head][dim], one layer's K of consecutive blocks is one
// contiguous run.
enum class KvLayoutKind : uint8_t { kBlockMajor, kLayerMajor };
std::string_view KvLayoutKindName(KvLayoutKind kind);

inline constexpr int32_t kMinBlockSize = 1;
inline constexpr int32_t kMaxBlockSize = 128;

// The piece {layer, K or V, block} is always contiguous: block_size rows of token_stride elements,
// [token][head][dim]. An int8 row goes on with its scales, f32 [head], and is padded to 16 bytes,
// so that any leading tokens of a piece carry all that belongs to them.
class KvLayout {
 public:
  // InvalidArgument names the field: block_size not a power of two in [1, 128], num_blocks < 1, a
  // zero dimension, or a pool past 2^62 bytes.
  static absl::StatusOr<KvLayout> Create(const KvGroupSpec& group, KvLayoutKind kind,
                                         int32_t block_size, int64_t num_blocks);

  const KvGroupSpec& group() const { return group_; }
  KvLayoutKind kind() const { return kind_; }
  int32_t block_size() const { return block_size_; }
  int32_t block_size_log2() const { return block_size_log2_; }
  int64_t num_blocks() const { return num_blocks_; }

  // In elements.
  int64_t block_stride() const { return block_stride_; }
  int64_t layer_stride() const { return layer_stride_; }
  int64_t value_offset() const { return value_offset_; }
  int64_t token_stride() const { return token_stride_; }
  int64_t head_stride() const { return group_.head_dim; }
  // Of an int8 row's scales, from its first value.
  int64_t scale_offset() const { return int64_t{group_.kv_heads} * group_.head_dim; }

  int64_t piece_bytes() const;      // one {layer, K or V, block}
  int64_t bytes_per_block() const;  // all layers, K and V
  int64_t pool_bytes() const;
  // Byte offset of a piece in the pool. REQUIRES: arguments in range.
  int64_t PieceOffset(int32_t layer, bool value, int64_t block) const;

 private:
  KvGroupSpec group_;
  KvLayoutKind kind_ = KvLayoutKind::kBlockMajor;
  int32_t block_size_ = 16;
  int32_t block_size_log2_ = 4;
  int64_t num_blocks_ = 0;
  int64_t token_stride_ = 0;
  int64_t block_stride_ = 0;
  int64_t layer_stride_ = 0;
  int64_t value_offset_ = 0;
};

}  // namespace baton
