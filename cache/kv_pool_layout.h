// How the blocks of all KV groups of a model lie in one pool.
//
// A pool is one range of bytes. Each group has a part of it, laid out by its own KvLayout, and its
// own block ids from 0 on. The parts follow each other in the order of the groups, and each begins
// at a multiple of kGroupAlignment bytes. A pool of one group is that group's layout.
//
// A layer of the model lies in one group, where it has another number. Code that moves KV speaks of
// model layers, because those are what a step computes one after another.
//
// Thread safety: an immutable value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/kv_cache_spec.h"
#include "common/strong_int.h"

namespace baton {

// Where a layer of the model lies.
struct KvLayerPlace {
  int32_t group = 0;
  int32_t layer = 0;  // of the group
  bool operator==(const KvLayerPlace&) const = default;
};

class KvPoolLayout {
 public:
  // So that the memory of one group can be given back without touching another's. Peers recompute
  // the offsets over shared memory, so another value needs another transfer protocol version.
  static constexpr int64_t kGroupAlignment = 2 << 20;

  // A pool of one group.
  KvPoolLayout(const KvLayout& only);  // NOLINT(google-explicit-constructor): it is one
  // `num_blocks` has one entry for each group. InvalidArgument and Unimplemented as
  // CheckKvCacheSpec and KvLayout::Create, also where the groups together leave out a layer or
  // exceed 2^62 bytes.
  static absl::StatusOr<KvPoolLayout> Create(const KvCacheSpec& spec, KvLayoutKind kind,
                                             int32_t block_size,
                                             std::span<const int64_t> num_blocks);

  // The same groups in blocks of another kind, size and number. Errors as Create. `alignment`: in
  // place of kGroupAlignment, where no group's memory is given back. REQUIRES: a power of two.
  absl::StatusOr<KvPoolLayout> Recut(KvLayoutKind kind, int32_t block_size,
                                     std::span<const int64_t> num_blocks,
                                     int64_t alignment = kGroupAlignment) const;

  int32_t groups() const { return static_cast<int32_t>(groups_.size()); }
  // REQUIRES: group < groups().
  const KvLayout& group(int32_t group) const { return groups_[group].layout; }
  // Where the group's part begins, in bytes.
  int64_t offset(int32_t group) const { return groups_[group].offset; }
  // Number of the group's block 0 where the blocks of all groups are counted in one row.
  int64_t first_block(int32_t group) const { return groups_[group].first_block; }
  int64_t total_blocks() const;

  KvLayoutKind kind() const { return groups_.front().layout.kind(); }
  int32_t block_size() const { return groups_.front().layout.block_size(); }
  // Of the model.
  int32_t layers() const { return static_cast<int32_t>(places_.size()); }
  KvLayerPlace place(int32_t model_layer) const { return places_[model_layer]; }
  // Whether a block of this group has KV of the layer.
  bool IsOf(int32_t group, int32_t model_layer) const {
    return places_[model_layer].group == group;
  }
  const KvLayout& layout_of(int32_t model_layer) const {
    return groups_[places_[model_layer].group].layout;
  }
  // Byte offset in the pool of a piece of `block`, which is one of the layer's group. REQUIRES:
  // arguments in range.
  int64_t PieceOffset(int32_t model_layer, int32_t plane, int64_t block) const;

  // What a token has in all groups, and the whole range.
  int64_t bytes_per_block() const;  // one block of each group
  int64_t pool_bytes() const;

 private:
  struct Group {
    KvLayout layout;
    int64_t offset = 0;
    int64_t first_block = 0;
  };
  KvPoolLayout() = default;
  absl::Status Append(const KvGroupSpec& group, KvLayoutKind kind, int32_t block_size,
                      int64_t num_blocks, int64_t alignment);

  std::vector<Group> groups_;
  std::vector<KvLayerPlace> places_;  // by model layer
};

}  // namespace baton
