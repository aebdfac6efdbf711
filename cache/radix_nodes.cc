#include "cache/radix_nodes.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// Number of leading blocks that have consecutive ids. REQUIRES: not empty.
size_t RunLength(std::span<const BlockId> blocks) {
  constexpr size_t kStride = 16;
  const int32_t first = blocks[0].value();
  const auto expected = [&](size_t i) { return first + static_cast<int32_t>(i); };
  size_t length = 1;
  while (length + kStride <= blocks.size()) {
    int32_t differing = 0;
    for (size_t i = length; i < length + kStride; ++i) differing |= blocks[i].value() ^ expected(i);
    if (differing != 0) break;
    length += kStride;
  }
  while (length < blocks.size() && blocks[length].value() == expected(length)) ++length;
  return length;
}

}  // namespace

RadixNodes::RadixNodes(int32_t block_size, int32_t blocks, uint64_t hash_seed, uint32_t hash_mask)
    : block_size_(block_size),
      hash_seed_(hash_seed),
      hash_mask_(hash_mask),
      units_(block_size, blocks),
      node_of_block_(blocks, kNoNode) {}

// ---- adding and removing nodes ------------------------------------------------------------------

RadixNodes::Index RadixNodes::New() {
  Index index = static_cast<Index>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  nodes_[index].live = true;
  return index;
}

RadixNodes::Index RadixNodes::FindOrAddRoot(CacheNamespace cache_namespace) {
  if (const Index root = FindRoot(cache_namespace); root != kNoNode) return root;
  const Index root = New();
  nodes_[root].is_root = true;
  nodes_[root].generation = generation_;
  nodes_[root].cache_namespace = cache_namespace;
  roots_[cache_namespace] = root;
  return root;
}

RadixNodes::Index RadixNodes::AddChild(Index parent, std::span<const CacheUnit> first) {
  const Index child = New();
  nodes_[child].parent = parent;
  nodes_[child].begin = nodes_[parent].end();
  nodes_[child].generation = nodes_[parent].generation;
  nodes_[child].owner = nodes_[parent].owner;
  nodes_[child].tag = TagOf(parent, first);
  nodes_[child].use.created = Tick();
  ++nodes_[parent].child_count;
  children_.Insert(nodes_[child].tag, child);
  return child;
}

void RadixNodes::Append(Index index, std::span<const CacheUnit> units,
                        std::span<const BlockId> blocks) {
  RadixNode& node = nodes_[index];
  node.blocks.insert(node.blocks.end(), blocks.begin(), blocks.end());
  for (const BlockId block : blocks) {
    CHECK_EQ(node_of_block_[block.value()], kNoNode)
        << "block " << block << " is already in the tree";
    node_of_block_[block.value()] = index;
  }
  units_.Write(blocks, units);
}

RadixNodes::Index RadixNodes::Split(Index lower_index, int32_t blocks) {
  const Index upper_index = New();  // may move the nodes in memory
  RadixNode& lower = nodes_[lower_index];
  RadixNode& upper = nodes_[upper_index];
  children_.Erase(lower.tag, lower_index);
  const auto cut_blocks = lower.blocks.begin() + blocks;
  upper.blocks.assign(lower.blocks.begin(), cut_blocks);
  lower.blocks.erase(lower.blocks.begin(), cut_blocks);
  upper.parent = std::exchange(lower.parent, upper_index);
  upper.begin = lower.begin;
  lower.begin += blocks;
  upper.generation = lower.generation;
  upper.owner = lower.owner;
  upper.tag = lower.tag;
  lower.tag = TagOf(upper_index, FirstUnits(lower));
  upper.child_count = 1;
  upper.locks = lower.locks;
  upper.use = lower.use;
  for (const BlockId block : upper.blocks) node_of_block_[block.value()] = upper_index;
  children_.Insert(upper.tag, upper_index);
  children_.Insert(lower.tag, lower_index);
  return upper_index;
}

RadixNodes::Index RadixNodes::Remove(Index index) {
  const Index parent = nodes_[index].parent;
  if (nodes_[index].is_cut_off) {
    --cut_off_roots_;
  } else if (nodes_[index].is_root) {
    roots_.erase(nodes_[index].cache_namespace);
  } else {
    children_.Erase(nodes_[index].tag, index);
    --nodes_[parent].child_count;
  }
  static_cast<RadixNodeState&>(nodes_[index]) = RadixNodeState();
  unused_.push_back(index);
  return parent;
}

void RadixNodes::CutOff(CacheNamespace cache_namespace) {
  const auto root = roots_.find(cache_namespace);
  CHECK(root != roots_.end());
  nodes_[root->second].is_cut_off = true;
  ++cut_off_roots_;
  roots_.erase(root);
}

void RadixNodes::CutOffAll() {
  for (const auto& [cache_namespace, root] : roots_) nodes_[root].is_cut_off = true;
  cut_off_roots_ += static_cast<int64_t>(roots_.size());
  roots_.clear();
}

// ---- walks --------------------------------------------------------------------------------------

std::vector<CacheUnit> RadixNodes::FirstUnits(const RadixNode& node) const {
  std::vector<CacheUnit> units(block_size_);
  units_.Read(node.blocks[0], 0, units);
  return units;
}

uint32_t RadixNodes::TagOf(Index parent, std::span<const CacheUnit> first) const {
  return ChildTag(hash_seed_, parent, first) & hash_mask_;
}

RadixNodes::Index RadixNodes::FindChild(Index parent, std::span<const CacheUnit> first) const {
  return children_.Find(TagOf(parent, first), [&](Index index) {
    const RadixNode& node = nodes_[index];
    return node.parent == parent && units_.Equal(node.blocks[0], first);
  });
}

// Blocks with consecutive ids are adjacent in memory, so one comparison covers a whole run.
int32_t RadixNodes::EqualBlocks(const RadixNode& node, std::span<const CacheUnit> units) const {
  const std::span<const BlockId> blocks(node.blocks.data(),
                                        std::min(node.blocks.size(), units.size() / block_size_));
  const auto equal = [&](size_t begin, size_t count) {
    return units_.Equal(blocks[begin], units.subspan(begin * block_size_, count * block_size_));
  };
  size_t begin = 0;
  while (begin < blocks.size()) {
    const size_t run = RunLength(blocks.subspan(begin));
    if (!equal(begin, run)) {
      while (equal(begin, 1)) ++begin;
      break;
    }
    begin += run;
  }
  return static_cast<int32_t>(begin);
}

BlockId RadixNodes::BlockBefore(Index node, int32_t at, int32_t distance) const {
  int32_t place = at - distance;
  while (place < 0) {
    node = nodes_[node].parent;
    place += nodes_[node].size();
  }
  return nodes_[node].blocks[place];
}

CacheNamespace RadixNodes::NamespaceOf(Index node) const {
  while (!nodes_[node].is_root) node = nodes_[node].parent;
  return nodes_[node].cache_namespace;
}

std::vector<std::vector<RadixNodes::Index>> RadixNodes::ChildrenOfAll() const {
  std::vector<std::vector<Index>> children(nodes_.size());
  for (Index i = 0; i < static_cast<Index>(nodes_.size()); ++i) {
    if (nodes_[i].live && !nodes_[i].is_root) children[nodes_[i].parent].push_back(i);
  }
  return children;
}

int32_t RadixNodes::Depth() const {
  constexpr int32_t kUnknown = -1;
  std::vector<int32_t> depths(nodes_.size(), kUnknown);
  std::vector<Index> path;
  int32_t deepest = 0;
  for (Index i = 0; i < static_cast<Index>(nodes_.size()); ++i) {
    if (!nodes_[i].live) continue;
    Index at = i;
    for (; at != kNoNode && depths[at] == kUnknown; at = nodes_[at].parent) path.push_back(at);
    int32_t depth = at == kNoNode ? -1 : depths[at];  // a root has depth 0
    for (; !path.empty(); path.pop_back()) depths[path.back()] = ++depth;
    deepest = std::max(deepest, depths[i]);
  }
  return deepest;
}

// ---- checks -------------------------------------------------------------------------------------

absl::Status RadixNodes::CheckNode(Index index) const {
  const RadixNode& node = nodes_[index];
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("radix node ", index, ": ", what));
  };
  if (node.blocks.empty()) return broken("has no blocks");
  const RadixNode& parent = nodes_[node.parent];
  if (node.begin != parent.end()) return broken("does not begin where its parent ends");
  if (node.generation != parent.generation) return broken("generation differs from the parent's");
  if (node.owner != parent.owner) return broken("owner differs from the parent's");
  if (FindChild(node.parent, FirstUnits(node)) != index) {
    return broken("not found from its parent");
  }
  for (const BlockId block : node.blocks) {
    if (node_of_block_[block.value()] != index) return broken("block belongs to another node");
  }
  return absl::OkStatus();
}

absl::Status RadixNodes::CheckRoot(Index index) const {
  const RadixNode& root = nodes_[index];
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("radix root ", index, ": ", what));
  };
  if (!root.blocks.empty()) return broken("has blocks");
  const bool found = FindRoot(root.cache_namespace) == index;
  if (found == root.is_cut_off) return broken("must be found exactly if it is not cut off");
  return absl::OkStatus();
}

absl::Status RadixNodes::CheckInvariants() const {
  std::vector<int32_t> child_counts(nodes_.size());
  for (const RadixNode& node : nodes_) {
    if (node.live && node.parent != kNoNode) ++child_counts[node.parent];
  }
  int64_t live = 0, cut_off = 0, blocks = 0;
  for (Index i = 0; i < static_cast<Index>(nodes_.size()); ++i) {
    const RadixNode& node = nodes_[i];
    if (!node.live) continue;
    ++live;
    cut_off += node.is_cut_off;
    blocks += node.size();
    if (node.child_count != child_counts[i]) {
      return absl::InternalError(StrCat("radix node ", i, ": child count is wrong"));
    }
    RETURN_IF_ERROR(node.is_root ? CheckRoot(i) : CheckNode(i));
  }
  if (cut_off != cut_off_roots_) return absl::InternalError("radix tree: cut-off roots differ");
  if (live != static_cast<int64_t>(roots_.size()) + cut_off_roots_ + children_.size()) {
    return absl::InternalError("radix tree: some live nodes are not in the tree");
  }
  const auto listed =
      node_of_block_.size() - std::count(node_of_block_.begin(), node_of_block_.end(), kNoNode);
  if (blocks == static_cast<int64_t>(listed)) return absl::OkStatus();
  return absl::InternalError(
      StrCat("radix tree: its nodes have ", blocks, " blocks, ", listed, " are in node_of_block"));
}

}  // namespace baton
