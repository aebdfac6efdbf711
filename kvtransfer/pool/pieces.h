// Which bytes of blocks are meant: pieces {layer, plane} of tokens that lie side by side.
//
// What moves is a block of the sequence: of each KV group that is meant, the block with the same
// tokens. Its pieces have one canonical order, [layer of the model][plane], whatever the pool's
// layout. A layer whose group is not meant has no pieces. A layer range means the pieces of these
// layers. It is empty if none of the layers belongs to a group that travels.
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

// Some KV groups of a pool.
class GroupSet {
 public:
  constexpr GroupSet() = default;
  // Every group that a pool has.
  static constexpr GroupSet All() { return GroupSet((1u << kMaxKvGroups) - 1); }

  constexpr void Add(int32_t group) { bits_ |= 1u << group; }
  constexpr bool Has(int32_t group) const { return (bits_ >> group & 1u) != 0; }
  constexpr int32_t count() const { return std::popcount(bits_); }
  constexpr bool operator==(const GroupSet&) const = default;

 private:
  constexpr explicit GroupSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_ = 0;
};

// The block of each group with the same tokens; kNoBlock of groups that are not meant.
class GroupBlocks {
 public:
  GroupBlocks() { of_.fill(kNoBlock); }
  // Of group 0 alone.
  GroupBlocks(BlockId block) : GroupBlocks() { of_[0] = block; }  // NOLINT: converts
  // REQUIRES: at most kMaxKvGroups of them.
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

// Neighbouring layers of the model. None: all of them.
struct LayerRange {
  int32_t first = 0;
  int32_t count = 0;
  bool all() const { return count == 0; }
  int32_t end() const { return first + count; }
  bool operator==(const LayerRange&) const = default;
};
// The same with a count.
LayerRange Counted(const KvPoolLayout& layout, LayerRange layers);

// Tokens of a payload that lie side by side in a block of the pool. Leading tokens of a group that
// the receiver has, or does not need, lie nowhere: their parts have no block of that group.
struct LandingPart {
  GroupBlocks blocks;
  int32_t block_token = 0;    // the first one's slot in the block
  int32_t payload_token = 0;  // and its place in the payload
  int32_t tokens = 0;
  bool operator==(const LandingPart&) const = default;
};
// In the payload's order, without a gap between them.
using LandingParts = absl::InlinedVector<LandingPart, 1>;

// The first `valid_tokens` tokens of blocks.
inline LandingParts LeadingTokens(const GroupBlocks& blocks, int32_t valid_tokens) {
  return {LandingPart{.blocks = blocks, .tokens = valid_tokens}};
}

struct Piece {
  int32_t layer = 0;
  int32_t plane = 0;
  bool operator==(const Piece&) const = default;
};

// The pieces of some groups in a layer range, in canonical order:
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
    int32_t end_ = 0;  // layer
  };

  // `layout` outlives this and its iterators. REQUIRES: layers of the model.
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
// Bytes of a piece's first tokens.
int64_t PieceValidBytes(const KvPoolLayout& layout, const Piece& piece, int32_t valid_tokens);
// And of all pieces together.
int64_t BlockValidBytes(const KvPoolLayout& layout, int32_t valid_tokens, LayerRange layers = {},
                        GroupSet groups = GroupSet::All());

// The name of a piece in error messages: "layer 3 V", or "layer 3 plane 0" in a group without K and
// V apart. REQUIRES: a piece of the layout.
std::string PieceName(const KvPoolLayout& layout, const Piece& piece);

}  // namespace baton
