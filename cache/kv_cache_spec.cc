#include "cache/kv_cache_spec.h"

#include <bit>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kMaxPoolBytes = int64_t{1} << 62;
constexpr int64_t kInt8RowAlignment = 16;  // bytes

absl::Status CheckPositive(std::string_view name, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("KV layout: ", name, " is ", value, ", minimum 1"));
}

absl::Status CheckFields(const KvGroupSpec& group, int32_t block_size, int64_t num_blocks) {
  if (block_size < kMinBlockSize || block_size > kMaxBlockSize ||
      !std::has_single_bit(static_cast<uint32_t>(block_size))) {
    return absl::InvalidArgumentError(StrCat("KV layout: block_size is ", block_size,
                                             ", must be a power of two in [", kMinBlockSize, ", ",
                                             kMaxBlockSize, "]"));
  }
  const std::pair<std::string_view, int64_t> fields[] = {{"num_blocks", num_blocks},
                                                         {"layers", group.layers},
                                                         {"kv_heads", group.kv_heads},
                                                         {"head_dim", group.head_dim}};
  for (const auto& [name, value] : fields) {
    if (absl::Status status = CheckPositive(name, value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

int64_t TokenStride(const KvGroupSpec& group) {
  const int64_t values = int64_t{group.kv_heads} * group.head_dim;
  if (group.type != KvType::kInt8) return values;
  const int64_t bytes = values + int64_t{group.kv_heads} * static_cast<int64_t>(sizeof(float));
  return (bytes + kInt8RowAlignment - 1) / kInt8RowAlignment * kInt8RowAlignment;
}

}  // namespace

std::string_view KvLayoutKindName(KvLayoutKind kind) {
  switch (kind) {
    case KvLayoutKind::kBlockMajor:
      return "block-major";
    case KvLayoutKind::kLayerMajor:
      return "layer-major";
  }
  return "unknown";
}

absl::StatusOr<KvLayout> KvLayout::Create(const KvGroupSpec& group, KvLayoutKind kind,
                                          int32_t block_size, int64_t num_blocks) {
  if (absl::Status status = CheckFields(group, block_size, num_blocks); !status.ok()) {
    return status;
  }
  int64_t bytes = KvTypeBytes(group.type);
  for (const int64_t factor :
       {int64_t{2}, int64_t{group.layers}, TokenStride(group), int64_t{block_size}, num_blocks}) {
    if (bytes > kMaxPoolBytes / factor) {
      return absl::InvalidArgumentError(
          StrCat("KV layout: ", num_blocks, " blocks of ", block_size, " tokens, ", group.layers,
                 " layers, ", group.kv_heads, " heads of ", group.head_dim,
                 " make a pool larger than ", kMaxPoolBytes, " bytes"));
    }
    bytes *= factor;
  }
  KvLayout layout;
  layout.group_ = group;
  layout.kind_ = kind;
  layout.block_size_ = block_size;
  layout.block_size_log2_ = std::countr_zero(static_cast<uint32_t>(block_size));
  layout.num_blocks_ = num_blocks;
  layout.token_stride_ = TokenStride(group);
  const int64_t piece = block_size * layout.token_stride_;
  const bool block_major = kind == KvLayoutKind::kBlockMajor;
  layout.value_offset_ = block_major ? piece : num_blocks * piece;
  layout.layer_stride_ = 2 * layout.value_offset_;
  layout.block_stride_ = block_major ? group.layers * layout.layer_stride_ : piece;
  return layout;
}

int64_t KvLayout::piece_bytes() const {
  return block_size_ * token_stride_ * KvTypeBytes(group_.type);
}

int64_t KvLayout::bytes_per_block() const { return 2 * group_.layers * piece_bytes(); }

int64_t KvLayout::pool_bytes() const { return num_blocks_ * bytes_per_block(); }

int64_t KvLayout::PieceOffset(int32_t layer, bool value, int64_t block) const {
  CHECK(layer >= 0 && layer < group_.layers) << "layer " << layer << " of " << group_.layers;
  CHECK(block >= 0 && block < num_blocks_) << "block " << block << " of " << num_blocks_;
  const int64_t elements =
      block * block_stride_ + layer * layer_stride_ + (value ? value_offset_ : 0);
  return elements * KvTypeBytes(group_.type);
}

}  // namespace baton
