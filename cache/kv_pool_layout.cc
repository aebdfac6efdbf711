#include "cache/kv_pool_layout.h"

#include <cstddef>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kMaxLayoutBytes = int64_t{1} << 62;

}  // namespace

KvPoolLayout::KvPoolLayout(const KvLayout& only) : groups_{{.layout = only}} {
  for (int32_t layer = 0; layer < only.group().layers; ++layer) places_.push_back({0, layer});
}

absl::StatusOr<KvPoolLayout> KvPoolLayout::Create(const KvCacheSpec& spec, KvLayoutKind kind,
                                                  int32_t block_size,
                                                  std::span<const int64_t> num_blocks) {
  RETURN_IF_ERROR(CheckKvCacheSpec(spec));
  CHECK(num_blocks.size() == spec.groups.size()) << num_blocks.size();
  KvPoolLayout pool;
  size_t layers = 0;
  for (size_t at = 0; at < spec.groups.size(); ++at) {
    RETURN_IF_ERROR(
        pool.Append(spec.groups[at], kind, block_size, num_blocks[at], kGroupAlignment));
    layers += static_cast<size_t>(spec.groups[at].layers);
  }
  pool.places_.resize(layers);
  for (int32_t at = 0; at < pool.groups(); ++at) {
    const KvGroupSpec& group = spec.groups[at];
    for (int32_t layer = 0; layer < group.layers; ++layer) {
      const int32_t of_model = group.model_layers.empty() ? layer : group.model_layers[layer];
      if (of_model >= static_cast<int64_t>(layers)) {
        return absl::InvalidArgumentError(StrCat("KV group ", at, " has model layer ", of_model,
                                                 ", but the groups have only ", layers,
                                                 " layers together"));
      }
      pool.places_[of_model] = {at, layer};
    }
  }
  return pool;
}

absl::StatusOr<KvPoolLayout> KvPoolLayout::Recut(KvLayoutKind kind, int32_t block_size,
                                                 std::span<const int64_t> num_blocks,
                                                 int64_t alignment) const {
  CHECK(num_blocks.size() == groups_.size()) << num_blocks.size();
  KvPoolLayout pool;
  for (size_t at = 0; at < groups_.size(); ++at) {
    RETURN_IF_ERROR(
        pool.Append(groups_[at].layout.group(), kind, block_size, num_blocks[at], alignment));
  }
  pool.places_ = places_;
  return pool;
}

absl::Status KvPoolLayout::Append(const KvGroupSpec& group, KvLayoutKind kind, int32_t block_size,
                                  int64_t num_blocks, int64_t alignment) {
  ASSIGN_OR_RETURN(const KvLayout layout, KvLayout::Create(group, kind, block_size, num_blocks));
  const int64_t end = groups_.empty() ? 0 : pool_bytes();
  const int64_t offset = (end + alignment - 1) / alignment * alignment;
  if (offset > kMaxLayoutBytes - layout.pool_bytes()) {
    return absl::InvalidArgumentError(
        StrCat("the KV groups make a pool larger than ", kMaxLayoutBytes, " bytes"));
  }
  const int64_t first_block = groups_.empty() ? 0 : total_blocks();
  groups_.push_back({.layout = layout, .offset = offset, .first_block = first_block});
  return absl::OkStatus();
}

int64_t KvPoolLayout::total_blocks() const {
  return groups_.back().first_block + groups_.back().layout.num_blocks();
}

int64_t KvPoolLayout::PieceOffset(int32_t model_layer, int32_t plane, int64_t block) const {
  CHECK(model_layer >= 0 && model_layer < layers())
      << "layer " << model_layer << " of " << layers();
  const KvLayerPlace place = places_[model_layer];
  const Group& group = groups_[place.group];
  return group.offset + group.layout.PieceOffset(place.layer, plane, block);
}

int64_t KvPoolLayout::bytes_per_block() const {
  int64_t bytes = 0;
  for (const Group& group : groups_) bytes += group.layout.bytes_per_block();
  return bytes;
}

int64_t KvPoolLayout::pool_bytes() const {
  return groups_.back().offset + groups_.back().layout.pool_bytes();
}

}  // namespace baton
