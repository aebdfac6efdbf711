// Describes how the blocks of all KV groups of a model lie in one pool.
//
// A pool is one range of bytes. Each group has a part of it, with its own KvLayout and its own
// block ids from 0 on. The parts follow each other in the order of the groups. Each part begins at
// a multiple of kGroupAlignment bytes. The pool of a single group has exactly that group's layout.
//
// A model layer belongs to one group and has another number there. Code that moves KV uses model
// layers, because a step computes them one after another.
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

// The group of a model layer, and the layer's number in that group.
struct KvLayerPlace {
  int32_t group = 0;
  int32_t layer = 0;  // of the group
  bool operator==(const KvLayerPlace&) const = default;
};

class KvPoolLayout {
 public:
  // Groups are aligned so that the memory of one group can be returned to the system without
  // touching another group. Peers compute the same offsets over shared memory. So a change of this
  // value needs a new transfer protocol version.
  static constexpr int64_t kGroupAlignment = 2 << 20;

  // A pool of one group.
  KvPoolLayout(const KvLayout& only);  // NOLINT(google-explicit-constructor): it is one
  // `num_blocks` has one entry for each group. Errors are those of CheckKvCacheSpec and
  // KvLayout::Create. InvalidArgument also means that the groups together leave out a layer or
  // exceed 2^62 bytes.
  static absl::StatusOr<KvPoolLayout> Create(const KvCacheSpec& spec, KvLayoutKind kind,
                                             int32_t block_size,
                                             std::span<const int64_t> num_blocks);

  // The same groups with another layout kind, block size and number of blocks. Errors as in Create.
  // Pass another `alignment` if no group's memory is ever returned to the system. REQUIRES:
  // `alignment` is a power of two.
  absl::StatusOr<KvPoolLayout> Recut(KvLayoutKind kind, int32_t block_size,
                                     std::span<const int64_t> num_blocks,
                                     int64_t alignment = kGroupAlignment) const;

  int32_t groups() const { return static_cast<int32_t>(groups_.size()); }
  // REQUIRES: group < groups().
  const KvLayout& group(int32_t group) const { return groups_[group].layout; }
  // Where the group's part begins, in bytes.
  int64_t offset(int32_t group) const { return groups_[group].offset; }
  // Number of the group's block 0 when the blocks of all groups are numbered consecutively.
  int64_t first_block(int32_t group) const { return groups_[group].first_block; }
  int64_t total_blocks() const;

  KvLayoutKind kind() const { return groups_.front().layout.kind(); }
  int32_t block_size() const { return groups_.front().layout.block_size(); }
  // Layers of the model.
  int32_t layers() const { return static_cast<int32_t>(places_.size()); }
  KvLayerPlace place(int32_t model_layer) const { return places_[model_layer]; }
  // Returns true if blocks of this group hold KV of the layer.
  bool IsOf(int32_t group, int32_t model_layer) const {
    return places_[model_layer].group == group;
  }
  const KvLayout& layout_of(int32_t model_layer) const {
    return groups_[places_[model_layer].group].layout;
  }
  // Byte offset of a piece in the pool. `block` is an id in the layer's group. REQUIRES: arguments
  // in range.
  int64_t PieceOffset(int32_t model_layer, int32_t plane, int64_t block) const;

  // Bytes of one block of every group, and of the whole pool.
  int64_t bytes_per_block() const;
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
