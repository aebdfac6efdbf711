#include "cache/radix_tree.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

// How many leading blocks have consecutive ids. REQUIRES: not empty.
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

RadixLock& RadixLock::operator=(RadixLock&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  tree_ = std::exchange(other.tree_, nullptr);
  node_ = std::exchange(other.node_, -1);
  priority_ = other.priority_;
  return *this;
}

void RadixLock::Drop() {
  if (tree_ == nullptr) return;
  std::exchange(tree_, nullptr)->UnlockPath(std::exchange(node_, -1));
}

RadixTree::RadixTree(int32_t block_size, BlockAllocator* allocator, EvictionPolicy policy,
                     uint64_t hash_seed, uint32_t hash_mask)
    : block_size_(block_size),
      allocator_(allocator),
      policy_(policy),
      hash_seed_(hash_seed),
      hash_mask_(hash_mask),
      units_(block_size, allocator->capacity()),
      node_of_block_(allocator->capacity(), kNone) {}

RadixTree::~RadixTree() {
  for (const Node& node : nodes_) {
    CHECK_EQ(node.locks, 0) << "a lock outlives its tree";
    if (node.live) allocator_->ReleaseHolds(node.blocks, BlockHolder::kRadixNode);
  }
}

// ---- nodes ------------------------------------------------------------------------------------

RadixTree::NodeIndex RadixTree::NewNode() {
  NodeIndex index = static_cast<NodeIndex>(nodes_.size());
  if (unused_nodes_.empty()) {
    nodes_.emplace_back();
  } else {
    index = unused_nodes_.back();
    unused_nodes_.pop_back();
  }
  nodes_[index].live = true;
  return index;
}

RadixTree::NodeIndex RadixTree::RootOf(CacheNamespace cache_namespace) {
  if (auto it = roots_.find(cache_namespace); it != roots_.end()) return it->second;
  const NodeIndex root = NewNode();
  nodes_[root].is_root = true;
  nodes_[root].generation = generation_;
  nodes_[root].cache_namespace = cache_namespace;
  roots_[cache_namespace] = root;
  return root;
}

// REQUIRES: no child, no lock, no block.
void RadixTree::RemoveNode(NodeIndex index) {
  const NodeIndex parent = nodes_[index].parent;
  if (nodes_[index].is_cut_off) {
    --cut_off_roots_;
  } else if (nodes_[index].is_root) {
    roots_.erase(nodes_[index].cache_namespace);
  } else {
    children_.Erase(nodes_[index].tag, index);
    --nodes_[parent].child_count;
  }
  static_cast<NodeState&>(nodes_[index]) = NodeState();
  unused_nodes_.push_back(index);
  if (parent == kNone) return;
  if (nodes_[parent].is_root) {
    RemoveRootIfUnused(parent);
  } else {
    QueueIfEvictable(parent);
  }
}

void RadixTree::RemoveRootIfUnused(NodeIndex root) {
  if (nodes_[root].child_count == 0 && nodes_[root].locks == 0) RemoveNode(root);
}

std::vector<CacheUnit> RadixTree::FirstUnits(const Node& node) const {
  std::vector<CacheUnit> units(block_size_);
  units_.Read(node.blocks[0], 0, units);
  return units;
}

uint32_t RadixTree::TagOf(NodeIndex parent, std::span<const CacheUnit> first) const {
  return ChildTag(hash_seed_, parent, first) & hash_mask_;
}

RadixTree::NodeIndex RadixTree::FindChild(NodeIndex parent,
                                          std::span<const CacheUnit> first) const {
  return children_.Find(TagOf(parent, first), [&](NodeIndex index) {
    const Node& node = nodes_[index];
    return node.parent == parent && units_.Equal(node.blocks[0], first);
  });
}

RadixTree::NodeIndex RadixTree::AddChild(NodeIndex parent, std::span<const CacheUnit> units,
                                         std::span<const BlockId> blocks) {
  const NodeIndex child = NewNode();
  nodes_[child].parent = parent;
  nodes_[child].begin = nodes_[parent].begin + nodes_[parent].size();
  nodes_[child].generation = nodes_[parent].generation;
  nodes_[child].tag = TagOf(parent, units.first(block_size_));
  nodes_[child].use.created = ++tick_;
  ++nodes_[parent].child_count;
  Append(child, units, blocks);
  children_.Insert(nodes_[child].tag, child);
  // It joins the eviction queue when its lock goes: Insert, the one caller, locks it next.
  return child;
}

void RadixTree::Append(NodeIndex index, std::span<const CacheUnit> units,
                       std::span<const BlockId> blocks) {
  Node& node = nodes_[index];
  node.blocks.insert(node.blocks.end(), blocks.begin(), blocks.end());
  (node.locks > 0 ? protected_blocks_ : evictable_blocks_) += static_cast<int32_t>(blocks.size());
  totals_.inserted_blocks += static_cast<int64_t>(blocks.size());
  for (const BlockId block : blocks) {
    CHECK_EQ(node_of_block_[block.value()], kNone) << "block " << block << " is in the tree";
    node_of_block_[block.value()] = index;
  }
  units_.Write(blocks, units);
  allocator_->AddHolds(blocks, BlockHolder::kRadixNode);
  if (allocator_->pinned() > 0) {
    for (const BlockId block : blocks) {
      if (allocator_->pins(block) > 0) PinAt(index, block);
    }
  }
  if (IsPublished(node)) PublishStored(index, node.size() - static_cast<int32_t>(blocks.size()));
}

// Cuts an edge behind its first `blocks`. The lower part stays the same node; returns the upper.
RadixTree::NodeIndex RadixTree::Split(NodeIndex lower_index, int32_t blocks) {
  const NodeIndex upper_index = NewNode();  // may move the nodes
  Node& lower = nodes_[lower_index];
  Node& upper = nodes_[upper_index];
  children_.Erase(lower.tag, lower_index);
  const auto cut_blocks = lower.blocks.begin() + blocks;
  upper.blocks.assign(lower.blocks.begin(), cut_blocks);
  lower.blocks.erase(lower.blocks.begin(), cut_blocks);
  upper.parent = std::exchange(lower.parent, upper_index);
  upper.begin = lower.begin;
  lower.begin += blocks;
  upper.generation = lower.generation;
  upper.tag = lower.tag;
  lower.tag = TagOf(upper_index, FirstUnits(lower));
  upper.child_count = 1;
  upper.locks = lower.locks;
  upper.use = lower.use;
  for (const BlockId block : upper.blocks) node_of_block_[block.value()] = upper_index;
  children_.Insert(upper.tag, upper_index);
  children_.Insert(lower.tag, lower_index);
  ++totals_.splits;
  return upper_index;
}

// ---- match and insert ---------------------------------------------------------------------------

// Blocks with consecutive ids lie side by side, and one comparison serves them all.
int32_t RadixTree::EqualBlocks(const Node& node, std::span<const CacheUnit> units) const {
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

// Follows `units` down from the end of `start`; visit(node, blocks) sees what is passed.
template <typename Visit>
RadixTree::Position RadixTree::Walk(NodeIndex start, std::span<const CacheUnit> units,
                                    int32_t max_blocks, Visit visit) const {
  Position at{.node = start, .in_node = nodes_[start].size(), .blocks = 0};
  const int32_t limit =
      static_cast<int32_t>(std::min<size_t>(std::max(max_blocks, 0), units.size() / block_size_));
  while (at.blocks < limit) {
    const auto rest =
        units.subspan(size_t(at.blocks) * block_size_, size_t(limit - at.blocks) * block_size_);
    const NodeIndex child = FindChild(at.node, rest.first(block_size_));
    if (child == kNone) break;
    const int32_t equal = EqualBlocks(nodes_[child], rest);
    visit(nodes_[child], equal);
    at = {.node = child, .in_node = equal, .blocks = at.blocks + equal};
    if (equal < nodes_[child].size()) break;
  }
  return at;
}

RadixTree::NodeIndex RadixTree::NodeEndingAt(const Position& position) {
  if (position.in_node == nodes_[position.node].size()) return position.node;
  return Split(position.node, position.in_node);
}

RadixPeek RadixTree::Peek(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                          int32_t max_blocks) const {
  RadixPeek peek;
  const auto root = roots_.find(cache_namespace);
  if (root == roots_.end()) return peek;
  if (!windows_.empty()) return PeekWhole(root->second, units, max_blocks);
  const Position end = Walk(root->second, units, max_blocks, [&](const Node& node, int32_t blocks) {
    if (node.locks == 0) peek.evictable_blocks += blocks;
  });
  peek.blocks = end.blocks;
  return peek;
}

RadixMatch RadixTree::Match(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                            int32_t max_blocks, int32_t min_blocks, int32_t priority) {
  RadixMatch match;
  const NodeIndex root = RootOf(cache_namespace);
  Position end = Walk(root, units, max_blocks, [&](const Node& node, int32_t blocks) {
    match.blocks.insert(match.blocks.end(), node.blocks.begin(), node.blocks.begin() + blocks);
  });
  if (!windows_.empty()) {
    end = WholeBefore(end, match.blocks);
    match.blocks.resize(end.blocks);
  }
  NodeIndex node = root;
  if (end.blocks < min_blocks) {
    match.blocks.clear();
  } else {
    node = NodeEndingAt(end);
  }
  LockPath(node, {.uses = 1, .priority = priority});
  match.lock = RadixLock(this, node, priority);
  return match;
}

// ---- windows ------------------------------------------------------------------------------------

void RadixTree::AddWindow(WindowCache* window) {
  CHECK(roots_.empty() && cut_off_roots_ == 0) << "the tree is in use";
  windows_.push_back(window);
}

RadixTree::Position RadixTree::WholeBefore(Position end, std::span<const BlockId> blocks) const {
  int32_t whole = end.blocks;
  // A shorter prefix for one window may be torn for another.
  for (int32_t before = -1; whole != before;) {
    before = whole;
    for (const WindowCache* window : windows_) whole = window->LongestWhole(blocks.first(whole));
  }
  while (end.blocks > whole) {
    const int32_t cut = std::min(end.blocks - whole, end.in_node);
    end.blocks -= cut;
    end.in_node -= cut;
    if (end.in_node > 0) break;
    end.node = nodes_[end.node].parent;
    end.in_node = nodes_[end.node].size();
  }
  return end;
}

RadixPeek RadixTree::PeekWhole(NodeIndex root, std::span<const CacheUnit> units,
                               int32_t max_blocks) const {
  std::vector<BlockId> blocks;
  std::vector<int32_t> evictable_before = {0};  // each number of leading blocks
  const Position end = Walk(root, units, max_blocks, [&](const Node& node, int32_t count) {
    blocks.insert(blocks.end(), node.blocks.begin(), node.blocks.begin() + count);
    for (int32_t i = 0; i < count; ++i) {
      evictable_before.push_back(evictable_before.back() + (node.locks == 0 ? 1 : 0));
    }
  });
  const int32_t whole = WholeBefore(end, blocks).blocks;
  return {.blocks = whole, .evictable_blocks = evictable_before[whole]};
}

void RadixTree::DropWindows(std::span<const BlockId> blocks) {
  for (WindowCache* window : windows_) window->Drop(blocks);
}

// ---- look-ups without a lock --------------------------------------------------------------------

RadixTree::Position RadixTree::Find(CacheNamespace cache_namespace,
                                    std::span<const CacheUnit> units) const {
  const auto root = roots_.find(cache_namespace);
  if (root == roots_.end()) return {};
  const int32_t blocks = static_cast<int32_t>(units.size() / block_size_);
  const Position end = Walk(root->second, units, blocks, [](const Node&, int32_t) {});
  return end.blocks == blocks ? end : Position();
}

bool RadixTree::Contains(CacheNamespace cache_namespace, std::span<const CacheUnit> units) const {
  return units.size() < size_t(block_size_) || Find(cache_namespace, units).node != kNone;
}

int32_t RadixTree::Insert(RadixLock& lock, std::span<const CacheUnit> units,
                          std::span<BlockId> blocks) {
  CHECK(lock.tree_ == this);
  CHECK_EQ(units.size(), blocks.size() * block_size_);
  int32_t present = 0;
  const Position at = Walk(lock.node_, units, static_cast<int32_t>(blocks.size()),
                           [&](const Node& node, int32_t equal) {
                             std::copy_n(node.blocks.begin(), equal, blocks.begin() + present);
                             present += equal;
                           });
  totals_.duplicate_blocks += present;
  NodeIndex end = NodeEndingAt(at);
  if (present < static_cast<int32_t>(blocks.size())) {
    const auto new_units = units.subspan(size_t(present) * block_size_);
    const auto new_blocks = blocks.subspan(present);
    // A leaf that nobody else has locked grows in place, so that insertion chunk by chunk makes one
    // node and not a chain.
    const int32_t our_locks = end == lock.node_ ? 1 : 0;
    const Node& node = nodes_[end];
    if (!node.is_root && node.child_count == 0 && node.locks == our_locks) {
      Append(end, new_units, new_blocks);
    } else {
      end = AddChild(end, new_units, new_blocks);
    }
  }
  MoveLockDown(lock, end);
  return present;
}

// ---- locks --------------------------------------------------------------------------------------

// Counts one lock more on every node from `index` up to, and without, `end`.
void RadixTree::LockBetween(NodeIndex index, NodeIndex end, NewUse use) {
  for (NodeIndex at = index; at != end; at = nodes_[at].parent) {
    Node& node = nodes_[at];
    if (node.is_queued) Unqueue(at);  // before its key changes
    node.use.uses += use.uses;
    node.use.priority = std::max(node.use.priority, use.priority);
    if (node.locks++ > 0) continue;
    evictable_blocks_ -= node.size();
    protected_blocks_ += node.size();
  }
}

void RadixTree::LockPath(NodeIndex index, NewUse use) {
  ++nodes_[index].own_locks;
  LockBetween(index, kNone, use);
}

RadixLock RadixTree::Duplicate(const RadixLock& lock) {
  CHECK(lock.tree_ == this);
  LockPath(lock.node_, {.uses = 1, .priority = lock.priority_});
  return RadixLock(this, lock.node_, lock.priority_);
}

void RadixTree::UnlockPath(NodeIndex index) {
  --nodes_[index].own_locks;
  ++tick_;
  bool is_cut_off = false;
  NodeIndex parent = kNone;
  for (NodeIndex at = index; at != kNone; at = parent) {
    Node& node = nodes_[at];
    parent = node.parent;
    is_cut_off = node.is_cut_off;
    node.use.last_used = tick_;
    if (--node.locks > 0) continue;
    evictable_blocks_ += node.size();
    protected_blocks_ -= node.size();
    NoteUnlockedBehind(node);
    if (node.is_root) {
      RemoveRootIfUnused(at);
    } else {
      QueueIfEvictable(at);
    }
  }
  if (is_cut_off) DropUpwards(index);
}

// REQUIRES: `index` is the lock's node or below it.
void RadixTree::MoveLockDown(RadixLock& lock, NodeIndex index) {
  const NodeIndex from = std::exchange(lock.node_, index);
  --nodes_[from].own_locks;
  ++nodes_[index].own_locks;
  LockBetween(index, from, {.uses = 1, .priority = lock.priority_});
}

void RadixTree::PinAt(NodeIndex node, BlockId block) {
  pinned_at_[block] = node;
  if (nodes_[node].pinned_blocks++ == 0) LockPath(node, kNoUse);
}

void RadixTree::PinBlock(BlockId block) {
  const NodeIndex node = node_of_block_[block.value()];
  if (node != kNone) PinAt(node, block);
}

void RadixTree::UnpinBlock(BlockId block) {
  const auto it = pinned_at_.find(block);
  if (it == pinned_at_.end()) return;
  const NodeIndex node = it->second;
  pinned_at_.erase(it);
  if (--nodes_[node].pinned_blocks == 0) UnlockPath(node);
}

}  // namespace baton
