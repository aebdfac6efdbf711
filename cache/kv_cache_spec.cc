#include "cache/kv_cache_spec.h"

#include <algorithm>
#include <bit>
#include <set>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kMaxPoolBytes = int64_t{1} << 62;
constexpr int64_t kScaledRowAlignment = 16;  // bytes

absl::Status CheckPositive(std::string_view name, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("KV layout: ", name, " is ", value, ", minimum 1"));
}

absl::Status CheckPlanes(const KvGroupSpec& group) {
  if (group.planes >= 1 && group.planes <= kMaxKvPlanes && group.value_head_dim >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("KV layout: planes is ", group.planes, ", value_head_dim is ", group.value_head_dim,
             "; planes must be in [1, ", kMaxKvPlanes, "] and value_head_dim at least 0"));
}

absl::Status CheckFields(const KvGroupSpec& group, int32_t block_size, int64_t num_blocks) {
  if (block_size < kMinBlockSize || block_size > kMaxBlockSize ||
      !std::has_single_bit(static_cast<uint32_t>(block_size))) {
    return absl::InvalidArgumentError(StrCat("KV layout: block_size is ", block_size,
                                             "; must be a power of two in [", kMinBlockSize, ", ",
                                             kMaxBlockSize, "], set with --block-size"));
  }
  const std::pair<std::string_view, int64_t> fields[] = {{"num_blocks", num_blocks},
                                                         {"layers", group.layers},
                                                         {"kv_heads", group.kv_heads},
                                                         {"head_dim", group.head_dim}};
  for (const auto& [name, value] : fields) {
    if (absl::Status status = CheckPositive(name, value); !status.ok()) return status;
  }
  return CheckPlanes(group);
}

int64_t TokenStride(const KvGroupSpec& group, int32_t plane) {
  const int64_t values = int64_t{group.kv_heads} * group.head_dim_of(plane);
  if (!HasScales(group.type)) return values;
  const int64_t bytes = values + int64_t{group.kv_heads} * static_cast<int64_t>(sizeof(float));
  return (bytes + kScaledRowAlignment - 1) / kScaledRowAlignment * kScaledRowAlignment;
}

// Elements of one token and layer in all planes.
int64_t TokenElements(const KvGroupSpec& group) {
  int64_t elements = 0;
  for (int32_t plane = 0; plane < group.planes; ++plane) elements += TokenStride(group, plane);
  return elements;
}

absl::Status CheckGroup(const KvGroupSpec& group, int32_t at, std::set<int32_t>& layers,
                        std::set<int32_t>& windows) {
  const auto invalid = [&](std::string_view what, int64_t value) {
    return absl::InvalidArgumentError(
        StrCat("KV group ", at, " (", KvGroupKindName(group.kind), "): ", what, value));
  };
  if (group.kind == KvGroupKind::kRecurrentState) {
    return absl::UnimplementedError(
        StrCat("KV group ", at, ": recurrent states cannot be cached yet"));
  }
  const bool full = group.kind == KvGroupKind::kFullAttention;
  if (full != (at == 0)) return invalid("full attention must be group 0 and alone, is group ", at);
  if (!full && group.window < 1) return invalid("window must be at least 1, is ", group.window);
  if (!full && !windows.insert(group.window).second) {
    return invalid("two groups have the window ", group.window);
  }
  if (!group.model_layers.empty() && group.model_layers.size() != group.layers) {
    return invalid("model_layers must name every layer of the group, its length is ",
                   static_cast<int64_t>(group.model_layers.size()));
  }
  for (const int32_t layer : group.model_layers) {
    if (layer < 0 || !layers.insert(layer).second) return invalid("bad or repeated layer ", layer);
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view KvGroupKindName(KvGroupKind kind) {
  switch (kind) {
    case KvGroupKind::kFullAttention:
      return "full";
    case KvGroupKind::kSlidingWindow:
      return "window";
    case KvGroupKind::kRecurrentState:
      return "state";
  }
  return "unknown";
}

absl::Status CheckKvCacheSpec(const KvCacheSpec& spec) {
  const size_t groups = spec.groups.size();
  if (groups < 1 || groups > kMaxKvGroups) {
    return absl::InvalidArgumentError(
        StrCat("the KV cache has ", groups, " groups; [1, ", kMaxKvGroups, "] are allowed"));
  }
  std::set<int32_t> layers, windows;
  for (size_t at = 0; at < groups; ++at) {
    if (groups > 1 && spec.groups[at].model_layers.empty()) {
      return absl::InvalidArgumentError(
          StrCat("KV group ", at, " of ", groups, " does not name its model layers"));
    }
    absl::Status status = CheckGroup(spec.groups[at], static_cast<int32_t>(at), layers, windows);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

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
  if (group.kind == KvGroupKind::kRecurrentState) {
    return absl::UnimplementedError("KV layout: a recurrent state has no blocks");
  }
  if (absl::Status status = CheckFields(group, block_size, num_blocks); !status.ok()) {
    return status;
  }
  int64_t bytes = KvTypeBytes(group.type);
  const int64_t elements =
      std::max(TokenStride(group, 0), TokenStride(group, group.planes - 1)) > kMaxPoolBytes / 4
          ? kMaxPoolBytes + 1  // the sum of two strides might overflow
          : TokenElements(group);
  for (const int64_t factor : {int64_t{group.layers}, elements, int64_t{block_size}, num_blocks}) {
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
  const bool block_major = kind == KvLayoutKind::kBlockMajor;
  const int64_t layer_elements = block_size * TokenElements(group);  // of one block
  int64_t offset = 0;
  for (int32_t plane = 0; plane < group.planes; ++plane) {
    const int64_t token_stride = TokenStride(group, plane);
    const int64_t piece = block_size * token_stride;
    layout.planes_[plane] = {.offset = offset,
                             .block_stride = block_major ? group.layers * layer_elements : piece,
                             .token_stride = token_stride};
    offset += block_major ? piece : num_blocks * piece;
  }
  layout.layer_stride_ = offset;
  return layout;
}

int64_t KvLayout::piece_bytes(int32_t plane) const {
  return block_size_ * token_stride(plane) * KvTypeBytes(group_.type);
}

int64_t KvLayout::bytes_per_block() const {
  return group_.layers * block_size_ * TokenElements(group_) * KvTypeBytes(group_.type);
}

int64_t KvLayout::pool_bytes() const { return num_blocks_ * bytes_per_block(); }

int64_t KvLayout::PieceOffset(int32_t layer, int32_t plane, int64_t block) const {
  CHECK(layer >= 0 && layer < group_.layers) << "layer " << layer << " of " << group_.layers;
  CHECK(plane >= 0 && plane < group_.planes) << "plane " << plane << " of " << group_.planes;
  CHECK(block >= 0 && block < num_blocks_) << "block " << block << " of " << num_blocks_;
  const int64_t elements =
      block * block_stride(plane) + layer * layer_stride_ + plane_offset(plane);
  return elements * KvTypeBytes(group_.type);
}

}  // namespace baton
