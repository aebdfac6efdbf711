// A model's KV cache as a list of KV groups, and how one block of a group lies in memory.
//
// A group is a set of layers whose KV lives and dies together: layers with full attention, layers
// with one sliding window, layers with a recurrent state. Each group has its own pool and one block
// table per sequence, and one block id spans all layers of its group. A plain Llama has a single
// full-attention group. A block holds the same number of tokens in every group, so that a block
// boundary of the sequence is one in all of them.
//
// A token has one row per layer and plane. Plane 0 holds keys and plane 1 values; a group with one
// plane holds one latent row per token, from which the model computes both.
//
// KvLayout gives every offset. Kernels, transfer plans and `inspect` read it; no other code
// computes strides.
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

std::string_view KvGroupKindName(KvGroupKind kind);

inline constexpr int32_t kMaxKvPlanes = 2;

struct KvGroupSpec {
  KvGroupKind kind = KvGroupKind::kFullAttention;
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // of plane 0
  KvType type = KvType::kF16;
  // A token at position p sees slots (p - window, p]. Sliding window only, at least 1.
  int32_t window = 0;
  int32_t planes = 2;          // 2: keys and values; 1: one latent
  int32_t value_head_dim = 0;  // of plane 1; 0: as plane 0
  // The model's layers in this group, ascending; full and window layers alternate in many models.
  // Empty: layers 0, 1, ... of a model with one group.
  std::vector<int32_t> model_layers = {};
  int64_t state_bytes = 0;  // of one layer and sequence; recurrent state only

  int32_t head_dim_of(int32_t plane) const {
    return plane == 0 || value_head_dim == 0 ? head_dim : value_head_dim;
  }
  bool operator==(const KvGroupSpec&) const = default;
};

struct KvCacheSpec {
  std::vector<KvGroupSpec> groups;

  bool operator==(const KvCacheSpec&) const = default;
};

inline constexpr int32_t kMaxKvGroups = 4;

// Whether KvCacheManager can cache this: one full-attention group first, then sliding-window groups
// with different windows, at most kMaxKvGroups in all, and each model layer in one group.
// InvalidArgument names the group, the field and the limit; Unimplemented is a recurrent state.
absl::Status CheckKvCacheSpec(const KvCacheSpec& spec);

// Block-major: [block][layer][plane][token][head][dim], one block is one contiguous run.
// Layer-major: [layer][plane][block][token][head][dim], one layer's plane of consecutive blocks is
// one contiguous run.
enum class KvLayoutKind : uint8_t { kBlockMajor, kLayerMajor };
std::string_view KvLayoutKindName(KvLayoutKind kind);

inline constexpr int32_t kMinBlockSize = 1;
inline constexpr int32_t kMaxBlockSize = 128;

// The piece {layer, plane, block} is always contiguous: block_size rows of token_stride elements,
// [token][head][dim]. An int8 row goes on with its scales, f32 [head], and is padded to 16 bytes,
// so that any leading tokens of a piece carry all that belongs to them.
//
// The rows of plane p of a layer begin at
//   layer * layer_stride() + plane_offset(p) + block * block_stride(p) + token * token_stride(p).
// Accessors without an argument are those of plane 0, and where both planes have rows of one size,
// those of plane 1 too.
class KvLayout {
 public:
  // InvalidArgument names the field: block_size not a power of two in [1, 128], num_blocks < 1, a
  // zero dimension, planes outside [1, 2], or a pool past 2^62 bytes. Unimplemented: a recurrent
  // state has no blocks.
  static absl::StatusOr<KvLayout> Create(const KvGroupSpec& group, KvLayoutKind kind,
                                         int32_t block_size, int64_t num_blocks);

  const KvGroupSpec& group() const { return group_; }
  KvLayoutKind kind() const { return kind_; }
  int32_t block_size() const { return block_size_; }
  int32_t block_size_log2() const { return block_size_log2_; }
  int64_t num_blocks() const { return num_blocks_; }
  int32_t planes() const { return group_.planes; }

  // In elements. REQUIRES: plane < planes().
  int64_t block_stride(int32_t plane = 0) const { return planes_[plane].block_stride; }
  int64_t layer_stride() const { return layer_stride_; }
  int64_t plane_offset(int32_t plane) const { return planes_[plane].offset; }
  int64_t token_stride(int32_t plane = 0) const { return planes_[plane].token_stride; }
  int64_t head_stride(int32_t plane = 0) const { return group_.head_dim_of(plane); }
  // Of an int8 row's scales, from its first value.
  int64_t scale_offset(int32_t plane = 0) const {
    return int64_t{group_.kv_heads} * group_.head_dim_of(plane);
  }
  // From a row of plane 0 to the same token's row of plane 1. REQUIRES: two planes with rows of one
  // size.
  int64_t value_offset() const { return planes_[1].offset; }

  int64_t piece_bytes(int32_t plane = 0) const;  // one {layer, plane, block}
  int64_t bytes_per_block() const;               // all layers and planes
  int64_t pool_bytes() const;
  // Byte offset of a piece in the pool. REQUIRES: arguments in range.
  int64_t PieceOffset(int32_t layer, int32_t plane, int64_t block) const;

 private:
  struct Plane {
    int64_t offset = 0;
    int64_t block_stride = 0;
    int64_t token_stride = 0;
  };
  KvGroupSpec group_;
  KvLayoutKind kind_ = KvLayoutKind::kBlockMajor;
  int32_t block_size_ = 16;
  int32_t block_size_log2_ = 4;
  int64_t num_blocks_ = 0;
  int64_t layer_stride_ = 0;
  Plane planes_[kMaxKvPlanes];
};

}  // namespace baton
