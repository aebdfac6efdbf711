// Names the bytes of a block: pieces {layer, plane}, each the K or V of contiguous tokens in one
// layer.
//
// A block of the sequence moves as the blocks of the selected KV groups that hold the same tokens.
// Its pieces have one canonical order, [layer of the model][plane], for every pool layout. A
// layer of an unselected group has no pieces. A layer range selects the pieces of these
// layers. The selection is empty if none of the layers belongs to a selected group.
//
// Thread safety: pure functions and values.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>

#include "absl/container/inlined_vector.h"
#include "cache/kv_pool_layout.h"
#include "common/strong_int.h"

namespace baton {

// Set of KV groups of a pool.
class GroupSet {
 public:
  constexpr GroupSet() = default;
  // Contains every group that a pool can have.
  static constexpr GroupSet All() { return GroupSet((1u << kMaxKvGroups) - 1); }

  constexpr void Add(int32_t group) { bits_ |= 1u << group; }
  constexpr bool Has(int32_t group) const { return (bits_ >> group & 1u) != 0; }
  constexpr int32_t count() const { return std::popcount(bits_); }
  constexpr bool operator==(const GroupSet&) const = default;

 private:
  constexpr explicit GroupSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_ = 0;
};

// One block of each group, all with the same tokens; kNoBlock for groups that are not selected.
class GroupBlocks {
 public:
  GroupBlocks() { of_.fill(kNoBlock); }
  // A block of group 0 alone.
  GroupBlocks(BlockId block) : GroupBlocks() { of_[0] = block; }  // NOLINT: converts
  // REQUIRES: at most kMaxKvGroups entries.
  explicit GroupBlocks(std::span<const BlockId> row) : GroupBlocks() {
    for (size_t group = 0; group < row.size(); ++group) of_[group] = row[group];
  }

  BlockId operator[](int32_t group) const { return of_[static_cast<size_t>(group)]; }
  void Set(int32_t group, BlockId block) { of_[static_cast<size_t>(group)] = block; }
  GroupSet groups() const {
    GroupSet groups;
    for (int32_t group = 0; group < kMaxKvGroups; ++group) {
      if (of_[static_cast<size_t>(group)] != kNoBlock) groups.Add(group);
    }
    return groups;
  }
  bool operator==(const GroupBlocks&) const = default;

 private:
  std::array<BlockId, kMaxKvGroups> of_;
};

// Consecutive layers of the model. Count 0 means all layers.
struct LayerRange {
  int32_t first = 0;
  int32_t count = 0;
  bool all() const { return count == 0; }
  int32_t end() const { return first + count; }
  bool operator==(const LayerRange&) const = default;
};
// Returns the same range with its count set.
LayerRange Counted(const KvPoolLayout& layout, LayerRange layers);

// Payload tokens that lie side by side in one block of the pool. Leading tokens of a group that the
// receiver already has, or does not need, have no place: their parts have no block of that group.
struct LandingPart {
  GroupBlocks blocks;
  int32_t block_token = 0;    // slot of the first token in the block
  int32_t payload_token = 0;  // place of the first token in the payload
  int32_t tokens = 0;
  bool operator==(const LandingPart&) const = default;
};
// In payload order, without gaps.
using LandingParts = absl::InlinedVector<LandingPart, 1>;

// Returns the part with the first `valid_tokens` tokens of `blocks`.
inline LandingParts LeadingTokens(const GroupBlocks& blocks, int32_t valid_tokens) {
  return {LandingPart{.blocks = blocks, .tokens = valid_tokens}};
}

struct Piece {
  int32_t layer = 0;
  int32_t plane = 0;
  bool operator==(const Piece&) const = default;
};

// Range over the pieces of some groups in a layer range, in canonical order:
//   for (const Piece piece : Pieces(layout, groups, layers)) …
class Pieces {
 public:
  class Iterator {
   public:
    Iterator() = default;
    Piece operator*() const { return at_; }
    Iterator& operator++() {
      if (++at_.plane < layout_->layout_of(at_.layer).planes()) return *this;
      at_ = {.layer = at_.layer + 1, .plane = 0};
      SkipOthers();
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    friend class Pieces;
    Iterator(const KvPoolLayout& layout, GroupSet groups, int32_t layer, int32_t end)
        : layout_(&layout), groups_(groups), at_{.layer = layer}, end_(end) {
      SkipOthers();
    }
    void SkipOthers() {
      while (at_.layer < end_ && !groups_.Has(layout_->place(at_.layer).group)) ++at_.layer;
    }

    const KvPoolLayout* layout_ = nullptr;
    GroupSet groups_;
    Piece at_;
    int32_t end_ = 0;  // a layer
  };

  // `layout` outlives this and its iterators. REQUIRES: `layers` are layers of the model.
  Pieces(const KvPoolLayout& layout, GroupSet groups, LayerRange layers)
      : layout_(layout), groups_(groups), layers_(Counted(layout, layers)) {}
  Pieces(KvPoolLayout&& layout, GroupSet groups, LayerRange layers) = delete;

  Iterator begin() const { return Iterator(layout_, groups_, layers_.first, layers_.end()); }
  Iterator end() const { return Iterator(layout_, groups_, layers_.end(), layers_.end()); }

 private:
  const KvPoolLayout& layout_;
  GroupSet groups_;
  LayerRange layers_;
};

int32_t PieceCount(const KvPoolLayout& layout, LayerRange layers = {},
                   GroupSet groups = GroupSet::All());
// Returns the bytes of a piece's first `valid_tokens` tokens.
int64_t PieceValidBytes(const KvPoolLayout& layout, const Piece& piece, int32_t valid_tokens);
// Returns the same for all selected pieces together.
int64_t BlockValidBytes(const KvPoolLayout& layout, int32_t valid_tokens, LayerRange layers = {},
                        GroupSet groups = GroupSet::All());

// Returns the smallest payload that a frame may have. All layers of a range may belong to groups
// that do not travel with the block. Then the payload is empty.
inline int64_t LeastPayloadBytes(const KvPoolLayout& layout) {
  return layout.groups() == 1 ? 1 : 0;
}

// Returns a piece's name for error messages: "layer 3 V", or "layer 3 plane 0" in a group that does
// not store K and V apart. REQUIRES: a piece of the layout.
std::string PieceName(const KvPoolLayout& layout, const Piece& piece);

}  // namespace baton
