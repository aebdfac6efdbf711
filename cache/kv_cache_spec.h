// Describes a model's KV cache as a list of KV groups, and the memory layout of one group's blocks.
//
// A KV group is a set of layers whose KV has the same lifetime. They have full attention, the same
// sliding window, or a recurrent state. Each group has its own pool and one block table for each
// sequence. One block id covers all layers of its group. A plain Llama has a single full-attention
// group. A block holds the same number of tokens in every group. So a block boundary of the
// sequence is a block boundary in all groups.
//
// A token has one row for each layer and plane. Plane 0 holds keys and plane 1 values. A group with
// one plane holds one latent row for each token, and the model computes keys and values from it.
//
// KvLayout returns every offset. Kernels, transfer plans and `inspect` use it; no other code
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
  // For sliding windows only, at least 1: a token at position p sees slots (p - window, p].
  int32_t window = 0;
  int32_t planes = 2;          // 2: keys and values; 1: one latent row
  int32_t value_head_dim = 0;  // of plane 1; 0 means the same as plane 0
  // The model's layers in this group, ascending. They need not be consecutive, because many models
  // alternate full and window layers. Empty means layers 0, 1, ... of a model with one group.
  std::vector<int32_t> model_layers = {};
  int64_t state_bytes = 0;  // bytes for one layer and sequence; recurrent state only

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

// Checks that KvCacheManager can cache this spec. It needs one full-attention group first, then
// sliding-window groups with different windows. The limit is kMaxKvGroups in all, and each model
// layer belongs to one group. InvalidArgument names the group, the field and the limit.
// Unimplemented means a recurrent state.
absl::Status CheckKvCacheSpec(const KvCacheSpec& spec);

// Block-major: [block][layer][plane][token][head][dim]. One block is one contiguous run.
// Layer-major: [layer][plane][block][token][head][dim]. Consecutive blocks are one contiguous run
// in each layer and plane.
enum class KvLayoutKind : uint8_t { kBlockMajor, kLayerMajor };
std::string_view KvLayoutKindName(KvLayoutKind kind);

inline constexpr int32_t kMinBlockSize = 1;
inline constexpr int32_t kMaxBlockSize = 128;

// Byte and element offsets of one group's pool.
//
// The piece {layer, plane, block} is always contiguous: block_size rows of token_stride elements,
// [token][head][dim]. If the type has scales (HasScales), the scales of a row, f32 [head], follow
// its values, and the row is padded to 16 bytes. So the first n tokens of a piece are complete
// without the rest of the piece.
//
// The rows of plane p of a layer begin at
//   layer * layer_stride() + plane_offset(p) + block * block_stride(p) + token * token_stride(p).
// Accessors without an argument describe plane 0. They also describe plane 1 if both planes have
// rows of one size.
class KvLayout {
 public:
  // InvalidArgument names the field: block_size is not a power of two in [1, 128], num_blocks < 1,
  // a dimension is zero, planes is outside [1, 2], or the pool exceeds 2^62 bytes. Unimplemented: a
  // recurrent state has no blocks.
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
  // Distance from a row's first value to its scales, in elements. For types with scales only.
  int64_t scale_offset(int32_t plane = 0) const {
    return int64_t{group_.kv_heads} * group_.head_dim_of(plane);
  }
  // Distance from a token's row in plane 0 to its row in plane 1, in elements. REQUIRES: two planes
  // with rows of one size.
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
